#include "jinja/builtins/text_ops.h"

#include <algorithm>

#include "base/text/text_search.h"
#include "jinja/value/unicode.h"

namespace quire::jinja {

std::string replaced(Meter& meter, std::string_view s, std::string_view from, std::string_view to, Int count) {
  std::string out;
  Charge charge(meter, 0);
  meter.step((s.size() + from.size()) / 16);
  size_t at = 0;
  while (count != 0) {
    const size_t hit = find_text(s, from, at);
    if (hit == std::string_view::npos || hit > s.size()) break;
    meter.step();
    charge.grow(hit - at + to.size());
    out.append(s.substr(at, hit - at)).append(to);
    at = hit + from.size();
    if (count > 0) --count;
    if (!from.empty()) continue;
    if (at == s.size()) return out;  // an empty `from` matches before, between and after characters
    size_t next = at;
    utf8_decode(s, next);
    out.append(s.substr(at, next - at));
    at = next;
  }
  return out.append(s.substr(std::min(at, s.size())));
}

std::vector<std::string_view> split_lines(std::string_view s, bool keep_ends) {
  std::vector<std::string_view> out;
  size_t start = 0;
  for (size_t at = 0; at < s.size();) {
    const size_t end = at;
    const char32_t c = utf8_decode(s, at);
    const bool breaks = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!breaks) continue;
    if (c == '\r' && at < s.size() && s[at] == '\n') ++at;
    out.push_back(s.substr(start, (keep_ends ? at : end) - start));
    start = at;
  }
  if (start < s.size()) out.push_back(s.substr(start));
  return out;
}

namespace {

std::vector<std::string_view> split_words(std::string_view s, Int count, bool right) {
  std::vector<std::string_view> out;
  s = strip(s, nullptr, !right, right);
  while (!s.empty() && count != 0) {
    size_t cut = right ? 0 : s.size(), after = cut;  // the white space nearest to the start (right: to the end)
    for (size_t at = 0; at < s.size();) {
      const size_t start = at;
      if (!is_space(utf8_decode(s, at))) continue;
      cut = start;
      after = at;
      if (!right) break;
    }
    if (right && after == 0) break;
    if (!right && cut == s.size()) break;
    out.push_back(right ? s.substr(after) : s.substr(0, cut));
    s = right ? s.substr(0, cut) : s.substr(after);
    s = strip(s, nullptr, !right, right);
    if (count > 0) --count;
  }
  // The rest keeps the white space at its far end only if the cuts ran out.
  if (!s.empty() && count != 0) s = strip(s, nullptr, true, true);
  if (!s.empty()) out.push_back(s);
  return out;
}

}  // namespace

std::vector<std::string_view> split(Meter& meter, std::string_view s, const std::string* separator, Int count,
                                    bool right) {
  meter.step(s.size() / 16);
  std::vector<std::string_view> out;
  if (separator == nullptr) {
    if (right) meter.step(count < 0 ? s.size() : static_cast<size_t>(std::min(count, Int{1000})) * s.size() / 16);
    out = split_words(s, right && count < 0 ? Int{-1} : count, right && count >= 0);
    if (right && count >= 0) std::reverse(out.begin(), out.end());
    return out;
  }
  if (separator->empty()) throw invalid("empty separator");
  meter.step(separator->size() / 16);
  while (count != 0) {
    if (right && separator->size() > 16) meter.step(s.size() / 16);
    const size_t hit = right ? rfind_text(s, *separator) : find_text(s, *separator);
    if (hit == std::string_view::npos) break;
    out.push_back(right ? s.substr(hit + separator->size()) : s.substr(0, hit));
    s = right ? s.substr(0, hit) : s.substr(hit + separator->size());
    if (count > 0) --count;
  }
  out.push_back(s);
  if (right) std::reverse(out.begin(), out.end());
  return out;
}

std::string justified(std::string_view s, Int width, std::string_view fill, char align) {
  const Int length = static_cast<Int>(char_count(s));
  if (width > 1'000'000) throw no_resource("a text padded to more than a million characters");
  if (char_count(fill) != 1) throw invalid("The fill character must be exactly one character long");
  const Int missing = width > length ? width - length : Int{0};
  // str.center puts the odd space on the left if the width is odd, too.
  const Int left = align == '<' ? 0 : align == '>' ? missing : missing / 2 + (missing & width & 1);
  std::string out;
  for (Int i = 0; i < left; ++i) out += fill;
  out += s;
  for (Int i = left; i < missing; ++i) out += fill;
  return out;
}

}  // namespace quire::jinja
