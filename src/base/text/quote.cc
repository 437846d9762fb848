#include "base/text/quote.h"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>

#include "base/text/utf8.h"

namespace quire {

std::string quote(std::string_view text) {
  constexpr size_t kLongest = 80;
  std::string out = "\"";
  size_t at = 0;
  while (at < text.size() && at < kLongest) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const auto size = static_cast<size_t>(utf8_step(text, at).length);
    if (size == 0 || byte < 0x20 || byte == 0x7f) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", byte);
      ++at;
      continue;
    }
    if (byte == '"' || byte == '\\') out += '\\';
    out += text.substr(at, size);
    at += size;
  }
  if (at < text.size()) return fmt::format("{}...\" ({} bytes)", out, text.size());
  return out + '"';
}

}  // namespace quire
