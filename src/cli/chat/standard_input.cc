#include "cli/chat/standard_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/text/utf8.h"
#include "cli/chat/output.h"

namespace quire {
namespace {

constexpr std::chrono::milliseconds kForever(-1);

bool is_closed(int descriptor) { return ::fcntl(descriptor, F_GETFD) < 0; }

// Whether a read would not block. False: nothing came within `patience`.
bool wait_for_input(int descriptor, std::chrono::milliseconds patience) {
  pollfd waited{.fd = descriptor, .events = POLLIN, .revents = 0};
  int ready = 0;
  do {
    ready = ::poll(&waited, 1, static_cast<int>(patience.count()));
  } while (ready < 0 && errno == EINTR);
  return ready != 0;
}

// Appends what is there. False at the end.
bool read_more(int descriptor, std::string& text) {
  std::array<char, 65536> block;
  ssize_t got = 0;
  do {
    got = ::read(descriptor, block.data(), block.size());
    if (got < 0 && errno == EAGAIN) wait_for_input(descriptor, kForever);
  } while (got < 0 && (errno == EINTR || errno == EAGAIN));
  if (got < 0) throw invalid("standard input cannot be read: {}", std::strerror(errno));
  text.append(block.data(), static_cast<size_t>(got));
  if (text.size() > kMaxInputBytes)
    throw invalid("standard input has more than {} bytes, which no prompt may have", kMaxInputBytes);
  return got > 0;
}

// Removes a byte order mark; refuses what is not text.
std::string checked_text(std::string text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    throw invalid("standard input is UTF-16; convert it to UTF-8, for example with iconv -f UTF-16 -t UTF-8");
  if (const size_t nul = text.find('\0'); nul != text.npos)
    throw invalid("standard input is not text: byte {} is 0; convert it to UTF-8 text first", nul);
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    if (step.length == 0) {
      throw invalid(
          "standard input is not UTF-8 text: byte {} is 0x{:02X}; convert it, for example with iconv -f LATIN1 -t "
          "UTF-8",
          at, static_cast<unsigned char>(text[at]));
    }
    at += static_cast<size_t>(step.length);
  }
  if (text.starts_with(kMark)) text.erase(0, kMark.size());
  return text;
}

void note(const std::string& text) { write_out(STDERR_FILENO, "quire: " + text + "\n"); }

}  // namespace

std::string read_standard_input(int descriptor) {
  std::string text;
  while (!is_closed(descriptor) && read_more(descriptor, text)) {
  }
  return checked_text(std::move(text));
}

std::string read_piped_text(int descriptor, std::chrono::milliseconds patience) {
  if (::isatty(descriptor) || is_closed(descriptor)) return {};
  const double seconds = std::chrono::duration<double>(patience).count();
  if (!wait_for_input(descriptor, patience)) {
    note(
        fmt::format("standard input stays open, but nothing has come in {:g} s: the prompt is answered without it. "
                    "< /dev/null avoids the wait; to wait longer, leave out -p and send the prompt with the text",
                    seconds));
    return {};
  }
  std::string text;
  bool said = false;
  while (read_more(descriptor, text)) {
    if (said || wait_for_input(descriptor, patience)) continue;
    note(fmt::format("still reading standard input; {} bytes so far", text.size()));
    said = true;
  }
  return checked_text(std::move(text));
}

std::string joined_prompt(const std::string& prompt, const std::string& text) {
  if (prompt.empty() || text.empty()) return prompt + text;
  return prompt + (prompt.ends_with("\n\n") ? "" : prompt.ends_with('\n') ? "\n" : "\n\n") + text;
}

}  // namespace quire
