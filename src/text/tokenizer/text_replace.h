// What the steps of tokenizers replace in a text, with a bound on what becomes of it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "text/tokenizer/pretokenizer_regex.h"

namespace quire {

// `text` with every `from` as `to`; as it is where `from` is empty. Throws Error where more than `most` bytes would
// be made.
std::string replaced(std::string_view text, std::string_view from, std::string_view to, size_t most);

// Every match of `from`; `to` is plain text.
std::string replaced(std::string_view text, const Regex& from, Regex::Matcher& matcher, std::string_view to,
                     size_t most);

}  // namespace quire
