// Texts that tell pre-tokenizers from each other.
#pragma once

#include <span>
#include <string_view>

namespace quire {

// What people write in many languages, and code: pre-tokenizers that agree here are the same for most purposes.
std::span<const std::string_view> ordinary_texts();
// Spaces before a text, Korean, letters with marks, cases outside of ASCII: here llama.cpp differs from some models' tokenizers.
std::span<const std::string_view> unusual_texts();

}  // namespace quire
