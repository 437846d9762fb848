#include "text/text_replace.h"

#include <vector>

#include "text/text_growth.h"
#include "text/text_search.h"

namespace quire {

std::string replaced(std::string_view text, std::string_view from, std::string_view to, size_t most) {
  if (from.empty()) return std::string(text);
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  for (size_t at = find_text(text, from); at != text.npos; at = find_text(text, from, done)) {
    out += text.substr(done, at - done);
    append_within(out, to, most);
    done = at + from.size();
  }
  out += text.substr(done);
  return out;
}

std::string replaced(std::string_view text, const Regex& from, Regex::Matcher& matcher, std::string_view to,
                     size_t most) {
  std::vector<TextRange> matches;
  matcher.find_all(from, text, matches);
  std::string out;
  size_t done = 0;
  for (const TextRange& m : matches) {
    out += text.substr(done, m.begin - done);
    append_within(out, to, most);
    done = m.end;
  }
  out += text.substr(done);
  return out;
}

}  // namespace quire
