// Shows names from untrusted files safely in messages.
#pragma once

#include <string>
#include <string_view>

namespace quire {

// In double quotes, with everything but printable ASCII and well-formed UTF-8 escaped, cut after about 80 bytes.
std::string quote(std::string_view text);

}  // namespace quire
