// Text to the terminal or a pipe: at once, and never a control sequence that a file or a model made up.
#pragma once

#include <string>
#include <string_view>

namespace quire {

// Control characters (C0 but for newline and tab, DEL, C1) as \x1b, ill-formed UTF-8 as \xff. With `one_line`, newline,
// tab and backslash are escaped too.
std::string escape_controls(std::string_view text, bool one_line = false);

// Writes all of it to the file descriptor, past any buffer. false: the reader is gone (EPIPE, or the descriptor is
// closed). Throws Error for anything else, such as a full disk.
bool write_out(int descriptor, std::string_view text);

}  // namespace quire
