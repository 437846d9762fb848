// The regular expressions of pre-tokenizers, on PCRE2: Unicode classes, compiled to machine code, bounded.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace quire {

// Immutable; shared by threads. A match that needs too many steps or too much memory is an Error, and so are the matches of
// one Matcher that take too much time together. So a hostile pattern cannot hang or crash the process.
class Regex {
 public:
  // `pattern` has the meaning it has in Oniguruma (Hugging Face) or std::regex (llama.cpp): \s is Unicode's
  // White_Space. Throws Error with `where` if it does not compile (kInvalid) or uses syntax that PCRE2 reads
  // differently (kUnsupported).
  Regex(std::string_view pattern, const std::string& where);

  // One thread's memory for matching, and its budget of time: for a text, or for all texts of a vocabulary.
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

  // Calls match(begin, end) for the matches in `text` (well-formed UTF-8, without context around it) from left to
  // right. As in Oniguruma, an empty match counts unless it directly follows another match. `match` may search other
  // texts with this matcher.
  template <class Fn>
  void for_each_match(const Regex& regex, std::string_view text, Fn match) {
    Search search{regex, text};
    std::array<Range, 256> found;
    for (bool more = true; more;) {
      const size_t count = find_some(search, found);
      for (const Range& range : std::span(found).first(count)) match(range.begin, range.end);
      more = count == found.size();
    }
  }

 private:
  struct Range {
    size_t begin, end;
  };
  struct Search {
    const Regex& regex;
    std::string_view text;
    size_t at = 0, last_end = std::string_view::npos;  // where the search goes on, and where the last match ended
  };
  // The next matches; fewer than `found` holds: there are no more.
  size_t find_some(Search& search, std::span<Range> found);

  struct Memory;
  std::unique_ptr<Memory> memory_;
};

}  // namespace quire
