// Text as JSON strings, without building a Json.
#pragma once

#include <string>
#include <string_view>

namespace quire {

// Appends `text`, well-formed UTF-8 or any part of it, as a JSON string with its quotes.
void append_json_string(std::string_view text, std::string& out);

}  // namespace quire
