// Replacement in texts for the steps of tokenizers, with a bound on the result.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "text/tokenizer/pretokenizer_regex.h"

namespace quire {

// `text` with every `from` replaced by `to`; unchanged if `from` is empty. Throws Error if the result would exceed
// `most` bytes.
std::string replaced(std::string_view text, std::string_view from, std::string_view to, size_t most);

// Replaces every match of `from` by the plain text `to`.
std::string replaced(std::string_view text, const Regex& from, Regex::Matcher& matcher, std::string_view to,
                     size_t most);

}  // namespace quire
