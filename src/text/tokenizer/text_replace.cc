#include "text/tokenizer/text_replace.h"

#include "base/text/text_search.h"
#include "text/tokenizer/text_growth.h"

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
  std::string out;
  size_t done = 0;
  matcher.for_each_match(from, text, [&](size_t begin, size_t end) {
    out += text.substr(done, begin - done);
    append_within(out, to, most);
    done = end;
  });
  out += text.substr(done);
  return out;
}

}  // namespace quire
