// Text on standard input, for `quire run`.
#pragma once

#include <chrono>
#include <string>

namespace quire {

inline constexpr size_t kMaxInputBytes = size_t{64} << 20;

// Reads a descriptor to its end and drops a byte order mark; empty if the descriptor is closed. Throws Error, with a
// message about standard input, if it cannot be read, has more than kMaxInputBytes, or is not UTF-8 text.
std::string read_standard_input(int descriptor);

// The text that is piped to a command that already has a prompt. Empty: a terminal, a closed descriptor, an end without
// text, or a pipe that stays open and silent for `patience`, as those of CI runners do; the last is said on standard
// error. Once anything has come, the text is read to its end; waiting longer than `patience` for more is said, too.
// Throws like read_standard_input().
std::string read_piped_text(int descriptor, std::chrono::milliseconds patience);

// A prompt and the text that it is about, with an empty line between them.
std::string joined_prompt(const std::string& prompt, const std::string& text);

}  // namespace quire
