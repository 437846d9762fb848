// The %XX of URLs.
#pragma once

#include <string>
#include <string_view>

namespace quire {

// With each %XX replaced by its byte. A % without two hexadecimal digits stays.
std::string percent_decoded(std::string_view text);

}  // namespace quire
