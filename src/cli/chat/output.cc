#include "cli/chat/output.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>

#include "base/error.h"
#include "base/utf8.h"

namespace quire {
namespace {

bool is_control(char32_t c) { return c < 0x20 || (c >= 0x7F && c < 0xA0); }

}  // namespace

std::string escape_controls(std::string_view text, bool one_line) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    if (step.length == 0) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(text[at++]));
      continue;
    }
    const std::string_view bytes = text.substr(at, static_cast<size_t>(step.length));
    at += bytes.size();
    const bool layout = bytes == "\n" || bytes == "\t";
    if (layout && one_line) {
      out += bytes == "\n" ? "\\n" : "\\t";
    } else if (one_line && bytes == "\\") {
      out += "\\\\";
    } else if (!layout && is_control(step.character)) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<uint32_t>(step.character));
    } else {
      out += bytes;
    }
  }
  return out;
}

bool write_out(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(descriptor, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EPIPE || errno == EBADF) {
      return false;
    } else if (errno == EAGAIN) {  // somebody made the descriptor non-blocking
      pollfd writable{descriptor, POLLOUT, 0};
      ::poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      throw no_resource("standard output: {}", std::strerror(errno));
    }
  }
  return true;
}

}  // namespace quire
