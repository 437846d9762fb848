// SentencePiece's precompiled_charsmap: the replacements that normalize a text for a unigram model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Read from untrusted bytes; every access is checked. Immutable.
class CharsMap {
 public:
  // The blob: a size (4 bytes), a double array of that many bytes, then the replacements, each ended by a zero byte.
  // Throws Error if it is broken.
  CharsMap(std::string_view blob, const std::string& where);

  // Replaces the longest sequence at every position (llama.cpp, SentencePiece).
  std::string apply_prefixes(std::string_view text) const;
  // Replaces graphemes shorter than 6 bytes, otherwise their single characters (Hugging Face).
  std::string apply_graphemes(std::string_view text) const;

 private:
  struct Found {
    size_t length = 0;  // bytes of the text; 0: none
    std::string_view replacement;
  };
  Found longest_prefix(std::string_view text) const;
  Found shortest_prefix(std::string_view text) const;
  template <class Fn>
  void walk(std::string_view text, Fn fn) const;
  std::string_view replacement(uint32_t offset) const;

  std::vector<uint32_t> nodes_;
  std::string replacements_;
};

}  // namespace quire
