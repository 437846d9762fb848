// Unbuffered text to a terminal or a pipe, without control sequences from files or models.
#pragma once

#include <termios.h>

#include <string>
#include <string_view>
#include <utility>

namespace quire {

// Control characters (C0 but for newline and tab, DEL, C1) as \x1b, ill-formed UTF-8 as \xff. With `one_line`, newline,
// tab and backslash are escaped too.
std::string escape_controls(std::string_view text, bool one_line = false);

// Writes the whole text to the file descriptor, unbuffered. Returns false if the reader is gone (EPIPE, or the descriptor
// is closed). Throws Error for other failures, such as a full disk.
bool write_out(int descriptor, std::string_view text);

enum class Style { kPrompt, kNote, kError };

// Whether to use colours: `descriptor` is a terminal, TERM is not "dumb", and NO_COLOR is unset or empty.
bool has_colours(int descriptor);
// The escape sequence that begins the style, and the one that ends it.
std::pair<std::string_view, std::string_view> escapes(Style style);
// `text` in this style if the descriptor has colours, else unchanged.
std::string styled(int descriptor, Style style, std::string text);

// While it lives, a terminal on standard input does not echo what is typed. The line editor reads it later.
class SilentInput {
 public:
  SilentInput();
  ~SilentInput();
  SilentInput(const SilentInput&) = delete;
  SilentInput& operator=(const SilentInput&) = delete;

 private:
  termios before_{};
  bool changed_ = false;
};

}  // namespace quire
