// Suggestions for misspelled names: "Did you mean smollm2?"
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace quire {

// The candidate with the fewest edits (insert, delete or replace a character, swap two neighbours), if that is at most
// a third of the word's length (at least 1); else the first candidate that begins with the word (3 characters or more).
// Empty: none.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

// " Did you mean X?" or nothing.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace quire
