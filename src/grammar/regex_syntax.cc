#include "grammar/regex_syntax.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/text/quote.h"
#include "base/text/unicode.h"
#include "base/text/utf8.h"
#include "base/working_memory.h"

namespace quire::grammar {
namespace {

constexpr uint32_t kMaxCount = 1'000'000;

struct SyntaxNode {
  enum class Kind : uint8_t { kSet, kSequence, kChoice, kRepeat, kStart, kEnd, kAhead, kNotAhead };
  Kind kind = Kind::kSequence;
  CharSet set = {};
  std::vector<SyntaxNode> parts = {};  // kRepeat, kAhead, kNotAhead: one
  uint32_t min = 0, max = 0;
  bool zero_width = false;  // contains anchors or look-ahead
};

bool is_hex(char32_t c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_ascii_letter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// General categories by their names in \p{…}.
std::optional<CharSet> property_class(std::string_view name) {
  struct Property {
    std::string_view name, long_name;
    bool (*has)(char32_t);
  };
  static constexpr Property kProperties[] = {{"L", "Letter", is_letter},
                                             {"Lu", "Uppercase_Letter", is_upper},
                                             {"Ll", "Lowercase_Letter", is_lower},
                                             {"Nd", "Decimal_Number", is_digit},
                                             {"N", "Number", is_numeric},
                                             {"M", "Mark", is_mark},
                                             {"White_Space", "space", is_white_space}};
  const auto found = std::ranges::find_if(kProperties, [&](const Property& p) {
    return name == p.name || name == p.long_name || (name == "digit" && p.name == "Nd");
  });
  if (found == std::end(kProperties)) return std::nullopt;
  CharSet set;
  char32_t first = 0;
  bool inside = false;
  for (char32_t c = 0; c <= 0x10FFFF + 1; ++c) {
    const bool has = c <= 0x10FFFF && found->has(c);
    if (has && !inside) first = c;
    if (!has && inside) set.add(first, c - 1);
    inside = has;
  }
  return set;
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& where, int max_depth, size_t max_parts)
      : text_(text), where_(where), max_depth_(max_depth), max_parts_(max_parts) {}

  SyntaxNode parse() {
    if (!is_utf8(text_)) throw invalid("{}: the regex is not well-formed UTF-8", where_);
    SyntaxNode node = choice();
    if (!at_end()) fail("unmatched ')'");
    return node;
  }

 private:
  template <class... A>
  [[noreturn]] void fail(fmt::format_string<A...> f, A&&... a) const {
    throw invalid("{}: regex {}, column {}: {}", where_, quote(text_), at_ + 1, fmt::format(f, std::forward<A>(a)...));
  }
  template <class... A>
  [[noreturn]] void refuse(fmt::format_string<A...> f, A&&... a) const {
    throw unsupported("{}: regex {}, column {}: {}", where_, quote(text_), at_ + 1,
                      fmt::format(f, std::forward<A>(a)...));
  }

  bool at_end() const { return at_ == text_.size(); }
  bool sees(std::string_view word) const { return text_.substr(at_).starts_with(word); }
  bool take(std::string_view word) {
    if (!sees(word)) return false;
    at_ += word.size();
    return true;
  }
  char32_t next() {
    if (at_end()) fail("unexpected end");
    return utf8_next(text_, at_);
  }

  static SyntaxNode set_node(CharSet set) { return {.kind = SyntaxNode::Kind::kSet, .set = std::move(set)}; }

  SyntaxNode choice() {
    if (++depth_ > max_depth_) fail("groups are nested deeper than {} levels", max_depth_);
    SyntaxNode node{.kind = SyntaxNode::Kind::kChoice};
    do node.parts.push_back(sequence());
    while (take("|"));
    --depth_;
    if (node.parts.size() == 1) {
      SyntaxNode only = std::move(node.parts[0]);
      return only;
    }
    node.zero_width = std::ranges::any_of(node.parts, &SyntaxNode::zero_width);
    return node;
  }

  // The tree takes much more memory than the text.
  void count_part() {
    check_work();
    if (++parts_ <= max_parts_) return;
    throw no_resource("{}: regex {}, column {}: it has more than {} parts", where_, quote(text_), at_ + 1, max_parts_);
  }

  SyntaxNode sequence() {
    count_part();
    SyntaxNode node{.kind = SyntaxNode::Kind::kSequence};
    while (!at_end() && !sees("|") && !sees(")")) node.parts.push_back(quantified());
    node.zero_width = std::ranges::any_of(node.parts, &SyntaxNode::zero_width);
    return node;
  }

  SyntaxNode quantified() {
    const size_t begin = at_;
    count_part();
    SyntaxNode node = atom();
    while (true) {
      uint32_t min = 0, max = kUnbounded;
      const size_t here = at_;
      if (take("*")) {
      } else if (take("+")) {
        min = 1;
      } else if (take("?")) {
        max = 1;
      } else if (!count(min, max)) {
        return node;
      }
      if (here != begin && node.kind == SyntaxNode::Kind::kRepeat && here == quantified_until_)
        fail("nothing to repeat");
      if (node.kind == SyntaxNode::Kind::kStart || node.kind == SyntaxNode::Kind::kEnd) fail("nothing to repeat");
      take("?");  // lazy: the same texts match
      if (sees("+")) refuse("possessive quantifiers are not supported");
      const bool zero_width = node.zero_width;
      if (zero_width && max > 1) refuse("a repeated group with anchors or look-ahead is not supported");
      SyntaxNode repeat{.kind = SyntaxNode::Kind::kRepeat, .min = min, .max = max, .zero_width = zero_width};
      repeat.parts.push_back(std::move(node));
      node = std::move(repeat);
      quantified_until_ = at_;
    }
  }

  // {m}, {m,} or {m,n}; anything else after '{' is text.
  bool count(uint32_t& min, uint32_t& max) {
    const size_t begin = at_;
    const auto number = [&](uint32_t& value) {
      const size_t first = at_;
      uint64_t read = 0;
      while (!at_end() && text_[at_] >= '0' && text_[at_] <= '9')
        read = std::min<uint64_t>(read * 10 + static_cast<uint64_t>(text_[at_++] - '0'), kMaxCount + 1);
      value = static_cast<uint32_t>(read);
      return at_ > first;
    };
    const auto is_count = [&] {
      if (!take("{") || !number(min)) return false;
      max = min;
      if (take(",")) {
        if (sees("}")) {
          max = kUnbounded;
        } else if (!number(max)) {
          return false;
        }
      }
      return take("}");
    };
    if (!is_count()) {
      at_ = begin;
      return false;
    }
    if (min > kMaxCount || (max > kMaxCount && max != kUnbounded))
      refuse("counts over {} are not supported", kMaxCount);
    if (min > max) fail("the count {{{},{}}} is out of order", min, max);
    return true;
  }

  SyntaxNode atom() {
    const char32_t c = next();
    switch (c) {
      case '.':
        return set_node(CharSet{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}.complement());
      case '^':
        return {.kind = SyntaxNode::Kind::kStart, .zero_width = true};
      case '$':
        return {.kind = SyntaxNode::Kind::kEnd, .zero_width = true};
      case '(':
        return group();
      case '[':
        return set_node(char_class());
      case '\\':
        return set_node(escape(false));
      case '*':
      case '+':
      case '?':
        --at_;
        fail("nothing to repeat");
      default:
        return set_node({{c, c}});
    }
  }

  SyntaxNode group() {
    SyntaxNode node{.kind = SyntaxNode::Kind::kSequence};
    bool look = false;
    if (take("?=") || take("?!")) {
      look = true;
      node = {.kind = text_[at_ - 1] == '=' ? SyntaxNode::Kind::kAhead : SyntaxNode::Kind::kNotAhead,
              .zero_width = true};
    } else if (sees("?<=") || sees("?<!")) {
      refuse("look-behind is not supported");
    } else if (take("?P<") || take("?<")) {
      while (next() != '>') {
      }
    } else if (sees("?") && !sees("?:")) {
      refuse("flags and this kind of group are not supported");
    } else {
      take("?:");
    }
    SyntaxNode inner = choice();
    if (!take(")")) fail("a group is not closed");
    if (!look) return inner;
    node.parts.push_back(std::move(inner));
    return node;
  }

  CharSet char_class() {
    const bool negated = take("^");
    CharSet set;
    while (!take("]")) {
      if (at_end()) fail("a class is not closed");
      if (sees("[:")) refuse("POSIX classes are not supported");
      bool single = true;
      const auto member = [&]() -> CharSet {
        const char32_t c = next();
        if (c != '\\') return {{c, c}};
        CharSet escaped = escape(true);
        single = single && escaped.ranges().size() == 1 && escaped.ranges()[0].first == escaped.ranges()[0].second;
        return escaped;
      };
      const CharSet first = member();
      if (sees("-") && !sees("-]") && at_ + 1 < text_.size()) {
        take("-");
        const CharSet last = member();
        if (single) {
          if (first.ranges()[0].first > last.ranges()[0].first) fail("a range is out of order");
          set.add(first.ranges()[0].first, last.ranges()[0].first);
          continue;
        }
        set.add(U'-', U'-');  // [\w-.]: not a range
        set.add(last);
      }
      set.add(first);
    }
    return negated ? set.complement() : set;
  }

  char32_t hex(size_t digits) {
    char32_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      const char32_t c = next();
      if (!is_hex(c)) fail("expected a hexadecimal digit");
      value = value * 16 + (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return value;
  }

  char32_t unicode_escape() {
    if (take("{")) {
      char32_t value = 0;
      size_t digits = 0;
      for (; !take("}"); ++digits) {
        value = value * 16 + hex(1);
        if (value > 0x10FFFF) fail("there is no such character");
      }
      if (digits == 0) fail("expected a hexadecimal digit");
      return value;
    }
    const char32_t high = hex(4);
    if (high >= 0xD800 && high < 0xDC00 && take("\\u")) {
      const char32_t low = hex(4);
      if (low >= 0xDC00 && low < 0xE000) return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
      fail("expected the second half of a surrogate pair");
    }
    return high;
  }

  CharSet escape(bool in_class) {
    const char32_t c = next();
    if (is_ascii_letter(c)) {
      if (CharSet set = shorthand_class(static_cast<char>(c)); !set.ranges().empty()) return set;
    }
    const auto one = [](char32_t character) { return CharSet{{character, character}}; };
    switch (c) {
      case 't':
        return one('\t');
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case 'x':
        return one(hex(2));
      case 'u':
        return one(unicode_escape());
      case 'c': {
        const char32_t letter = next();
        if (!is_ascii_letter(letter)) fail("\\c needs a letter");
        return one(letter & 31);
      }
      case 'b':
        if (in_class) return one('\b');
        [[fallthrough]];
      case 'B':
        refuse("word boundaries are not supported");
      case 'p':
      case 'P': {
        if (!take("{")) fail("expected \\p{{NAME}}");
        const size_t end = text_.find('}', at_);
        if (end == text_.npos) fail("expected \\p{{NAME}}");
        const std::string_view name = text_.substr(at_, end - at_);
        const std::optional<CharSet> set = property_class(name);
        if (!set) refuse("the property {} is not supported; use L, Lu, Ll, N, Nd, M or White_Space", quote(name));
        at_ = end + 1;
        return c == 'p' ? *set : set->complement();
      }
      default:
        break;
    }
    if (c == '0' && (at_end() || text_[at_] < '0' || text_[at_] > '9')) return one(0);
    if (c >= '0' && c <= '9') refuse("back references and octal escapes are not supported");
    if (is_ascii_letter(c)) refuse("the escape \\{} is not supported", static_cast<char>(c));
    return one(c);
  }

  std::string_view text_;
  const std::string& where_;
  int max_depth_;
  size_t max_parts_, parts_ = 0;
  size_t at_ = 0;
  size_t quantified_until_ = SIZE_MAX;
  int depth_ = 0;
};

// Whether the place of a node is the start of the text: '^' holds, fails, or cannot be decided here.
enum class AtStart : uint8_t { kYes, kNo, kMaybe };

// From the tree to a regex, from the end: `after` is what may follow in the text, so that anchors and look-ahead become
// intersections with it.
class SyntaxConverter {
 public:
  SyntaxConverter(Encoding encoding, CharEncoder& encoder, RegexStore& store, const std::string& where)
      : encoding_(encoding), encoder_(encoder), store_(store), where_(where) {}

  RegexId convert(const SyntaxNode& node, RegexId after, AtStart start) {
    if (!node.zero_width && after != kEmpty) return store_.concat(convert(node, kEmpty, start), after);
    switch (node.kind) {
      case SyntaxNode::Kind::kSet:
        return store_.concat(encoder_.one_of(node.set, encoding_), after);
      case SyntaxNode::Kind::kSequence: {
        std::vector<AtStart> starts;
        for (const SyntaxNode& part : node.parts) {
          starts.push_back(start);
          if (start != AtStart::kNo && !is_assertion(part)) start = may_be_empty(part) ? AtStart::kMaybe : AtStart::kNo;
        }
        for (size_t i = node.parts.size(); i-- > 0;) after = convert(node.parts[i], after, starts[i]);
        return after;
      }
      case SyntaxNode::Kind::kChoice: {
        std::vector<RegexId> parts;
        for (const SyntaxNode& part : node.parts) parts.push_back(convert(part, after, start));
        return store_.any_of(std::move(parts));
      }
      case SyntaxNode::Kind::kRepeat: {
        const SyntaxNode& body = node.parts[0];
        if (!node.zero_width)
          return store_.concat(store_.repeat(convert(body, kEmpty, start), node.min, node.max), after);
        if (node.max == 0) return after;
        const RegexId once = convert(body, after, start);
        return node.min == 0 ? store_.any_of({once, after}) : once;
      }
      case SyntaxNode::Kind::kStart:
        if (start == AtStart::kMaybe)
          throw unsupported("{}: '^' after a part that may be empty is not supported", where_);
        return start == AtStart::kYes ? after : kNothing;
      case SyntaxNode::Kind::kEnd:
        return store_.nullable(after) ? kEmpty : kNothing;
      case SyntaxNode::Kind::kAhead:
        return store_.all_of({convert(node.parts[0], any_text(), start), after});
      case SyntaxNode::Kind::kNotAhead:
        return store_.all_of({store_.negate(convert(node.parts[0], any_text(), start)), after});
    }
    return kNothing;
  }

  RegexId any_text() { return store_.repeat(encoder_.any(encoding_), 0, kUnbounded); }

 private:
  static bool is_assertion(const SyntaxNode& node) {
    return node.kind == SyntaxNode::Kind::kStart || node.kind == SyntaxNode::Kind::kEnd ||
           node.kind == SyntaxNode::Kind::kAhead || node.kind == SyntaxNode::Kind::kNotAhead ||
           (node.kind == SyntaxNode::Kind::kSequence && std::ranges::all_of(node.parts, is_assertion)) ||
           (node.kind == SyntaxNode::Kind::kChoice && std::ranges::all_of(node.parts, is_assertion));
  }
  static bool may_be_empty(const SyntaxNode& node) {
    switch (node.kind) {
      case SyntaxNode::Kind::kSet:
        return false;
      case SyntaxNode::Kind::kSequence:
        return std::ranges::all_of(node.parts, may_be_empty);
      case SyntaxNode::Kind::kChoice:
        return std::ranges::any_of(node.parts, may_be_empty);
      case SyntaxNode::Kind::kRepeat:
        return node.min == 0 || may_be_empty(node.parts[0]);
      default:
        return true;
    }
  }

  Encoding encoding_;
  CharEncoder& encoder_;
  RegexStore& store_;
  const std::string& where_;
};

}  // namespace

CharSet shorthand_class(char letter) {
  CharSet set;
  switch (letter) {
    case 'd':
    case 'D':
      set = {{'0', '9'}};
      break;
    case 'w':
    case 'W':
      set = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
      break;
    case 's':
    case 'S':
      set = {{9, 13},          {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
             {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
      break;
    default:
      return set;
  }
  return letter < 'a' ? set.complement() : set;
}

RegexId parse_regex(std::string_view pattern, Anchoring anchoring, Encoding encoding, CharEncoder& encoder,
                    RegexStore& store, const std::string& where, int max_depth) {
  const SyntaxNode root = Parser(pattern, where, max_depth, store.budget().nodes).parse();
  SyntaxConverter converter(encoding, encoder, store, where);
  if (anchoring == Anchoring::kWhole) return converter.convert(root, kEmpty, AtStart::kYes);
  const RegexId any = converter.any_text();
  if (!root.zero_width) return store.concat(any, converter.convert(root, any, AtStart::kNo));
  const RegexId some = store.repeat(encoder.any(encoding), 1, kUnbounded);
  return store.any_of(
      {converter.convert(root, any, AtStart::kYes), store.concat(some, converter.convert(root, any, AtStart::kNo))});
}

}  // namespace quire::grammar
