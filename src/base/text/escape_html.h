// Text inside of HTML or XML, in an element or in a quoted attribute.
#pragma once

#include <string>
#include <string_view>

namespace quire {

// &, <, >, " and ' as the entities that Python's markupsafe writes: &amp; &lt; &gt; &#34; &#39;.
std::string escape_html(std::string_view text);

}  // namespace quire
