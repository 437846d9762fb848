// The regular expressions of pre-tokenizers, matched by PCRE2: Unicode classes, compiled to machine code, bounded.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct TextRange {
  size_t begin = 0, end = 0;
};

// Immutable once made; shared by threads. A match that takes too many steps or too much memory is an Error, so a
// hostile pattern cannot hang or crash the process.
class Regex {
 public:
  // `pattern` as Oniguruma (Hugging Face) or std::regex (llama.cpp) would read it: \s is Unicode's White_Space. Throws
  // Error with `where` when it does not compile (kInvalid) or uses what PCRE2 reads otherwise (kUnsupported).
  Regex(std::string_view pattern, const std::string& where);

  // One thread's memory for matching; made once for many texts.
  class Matcher;

  const std::string& pattern() const { return pattern_; }

 private:
  friend class Matcher;
  struct Code;
  std::string pattern_;
  std::shared_ptr<const Code> code_;
};

class Regex::Matcher {
 public:
  Matcher();
  ~Matcher();
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  // Appends the matches in `text` (well-formed UTF-8, seen as a whole text: no context around it) from left to right.
  // As Oniguruma counts them: an empty match is one, but not right behind another match.
  void find_all(const Regex& regex, std::string_view text, std::vector<TextRange>& matches);

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

}  // namespace quire
