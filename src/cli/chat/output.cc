#include "cli/chat/output.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "base/error.h"
#include "base/text/utf8.h"

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
    } else if (errno == EAGAIN) {  // another program made the descriptor non-blocking
      pollfd writable{descriptor, POLLOUT, 0};
      ::poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      throw no_resource("cannot write to standard output: {}", std::strerror(errno));
    }
  }
  return true;
}

bool has_colours(int descriptor) {
  const char* const off = std::getenv("NO_COLOR");
  const char* const term = std::getenv("TERM");
  return ::isatty(descriptor) != 0 && !(off && *off) && term && *term && std::strcmp(term, "dumb") != 0;
}

std::pair<std::string_view, std::string_view> escapes(Style style) {
  switch (style) {
    case Style::kPrompt:
      return {"\x1b[1;32m", "\x1b[0m"};  // bold green
    case Style::kNote:
      return {"\x1b[2m", "\x1b[0m"};  // dim
    case Style::kError:
      return {"\x1b[31m", "\x1b[0m"};  // red
  }
  return {};
}

std::string styled(int descriptor, Style style, std::string text) {
  if (text.empty() || !has_colours(descriptor)) return text;
  const auto [begin, end] = escapes(style);
  return fmt::format("{}{}{}", begin, text, end);
}

SilentInput::SilentInput() {
  if (::tcgetattr(STDIN_FILENO, &before_) != 0) return;
  termios silent = before_;
  silent.c_lflag &= ~static_cast<tcflag_t>(ECHO | ECHONL);
  changed_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &silent) == 0;
}

SilentInput::~SilentInput() {
  if (changed_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

}  // namespace quire
