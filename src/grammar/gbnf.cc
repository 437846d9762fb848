#include "grammar/gbnf.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "base/error.h"
#include "base/text/quote.h"
#include "base/text/utf8.h"
#include "base/working_memory.h"

namespace quire::grammar {
namespace {

struct Item {
  enum class Kind : uint8_t { kRegex, kRule, kSpecial, kSequence, kChoice, kRepeat };
  Kind kind = Kind::kSequence;
  uint32_t value = 0;  // regex, rule or special
  uint32_t min = 0, max = 0;
  std::vector<Item> parts = {};
};

struct Rule {
  std::string name;
  size_t first_use = 0;
  bool defined = false;
  Item body = {};
};

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class Reader {
 public:
  Reader(GrammarParts& parts, CharEncoder& encoder, std::string_view text, const Limits& limits)
      : parts_(parts), encoder_(encoder), text_(text), limits_(limits) {}

  std::vector<Rule> read() {
    if (!is_utf8(text_)) throw invalid("the grammar is not well-formed UTF-8");
    take("\xEF\xBB\xBF");  // a byte order mark
    for (skip(); at_ < text_.size(); skip()) {
      const size_t begin = at_;
      const std::string_view name = read_name();
      if (name.empty()) fail(begin, "expected the name of a rule");
      skip();
      if (!take("::=")) fail(at_, "expected '::='");
      Rule& rule = rules_[rule_index(name, begin)];
      if (rule.defined) fail(begin, "rule {} is defined twice", quote(name));
      rule.defined = true;
      Item body = choice(0);
      rules_[rule_index(name, begin)].body = std::move(body);
    }
    for (const Rule& rule : rules_) {
      if (!rule.defined) fail(rule.first_use, "rule {} is not defined", quote(rule.name));
    }
    if (!indices_.contains("root")) throw invalid("the grammar has no rule named root");
    return std::move(rules_);
  }
  uint32_t root() const { return indices_.find("root")->second; }

 private:
  template <class... A>
  [[noreturn]] void fail(size_t at, fmt::format_string<A...> f, A&&... a) const {
    const std::string_view before = text_.substr(0, at);
    const size_t newline = before.rfind('\n');
    throw invalid("grammar: line {}, column {}: {}", 1 + std::ranges::count(before, '\n'),
                  newline == before.npos ? at + 1 : at - newline, fmt::format(f, std::forward<A>(a)...));
  }
  template <class... A>
  [[noreturn]] void refuse(size_t at, fmt::format_string<A...> f, A&&... a) const {
    try {
      fail(at, "{}", fmt::format(f, std::forward<A>(a)...));
    } catch (const Error& error) {
      throw unsupported("{}", error.what());
    }
  }

  // The tree takes much more memory than the text.
  void count_part() {
    check_work();
    if (++parts_read_ <= limits_.nodes) return;
    try {
      fail(at_, "it has more than {} parts", limits_.nodes);
    } catch (const Error& error) {
      throw no_resource("{}", error.what());
    }
  }

  void skip() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        ++at_;
      } else {
        return;
      }
    }
  }
  bool sees(std::string_view word) const { return text_.substr(at_).starts_with(word); }
  bool take(std::string_view word) {
    if (!sees(word)) return false;
    at_ += word.size();
    return true;
  }
  std::string_view read_name() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  uint32_t rule_index(std::string_view name, size_t at) {
    const auto [found, added] = indices_.try_emplace(std::string(name), static_cast<uint32_t>(rules_.size()));
    if (added) {
      count_part();
      rules_.push_back({.name = std::string(name), .first_use = at});
    }
    return found->second;
  }
  // A sequence ends where the next rule begins.
  bool at_definition() {
    const size_t begin = at_;
    const bool name = !read_name().empty();
    skip();
    const bool definition = name && sees("::=");
    at_ = begin;
    return definition;
  }

  Item choice(int depth) {
    if (depth > limits_.depth) fail(at_, "groups are nested deeper than {} levels", limits_.depth);
    Item item{.kind = Item::Kind::kChoice};
    do item.parts.push_back(sequence(depth));
    while (take("|"));
    return item;
  }

  Item sequence(int depth) {
    count_part();
    Item item{.kind = Item::Kind::kSequence};
    for (skip(); at_ < text_.size() && !sees("|") && !sees(")") && !at_definition(); skip())
      item.parts.push_back(repeated(element(depth)));
    return item;
  }

  Item repeated(Item item) {
    for (skip(); at_ < text_.size(); skip()) {
      uint32_t min = 0, max = kUnbounded;
      if (take("*")) {
      } else if (take("+")) {
        min = 1;
      } else if (take("?")) {
        max = 1;
      } else if (sees("{")) {
        read_counts(min, max);
      } else {
        break;
      }
      Item outer{.kind = Item::Kind::kRepeat, .min = min, .max = max};
      outer.parts.push_back(std::move(item));
      item = std::move(outer);
      if (++repeats_ > limits_.depth) fail(at_, "more than {} repetitions of one part", limits_.depth);
    }
    repeats_ = 0;
    return item;
  }

  void read_counts(uint32_t& min, uint32_t& max) {
    constexpr uint64_t kMost = 1'000'000;
    const size_t begin = at_;
    const auto number = [&](uint32_t& value) {
      const size_t first = at_;
      uint64_t read = 0;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
        read = std::min(read * 10 + static_cast<uint64_t>(text_[at_] - '0'), kMost + 1);
      value = static_cast<uint32_t>(read);
      return at_ > first;
    };
    take("{");
    skip();
    const bool has_min = number(min);
    max = min;
    skip();
    if (take(",")) {
      skip();
      if (!number(max)) max = kUnbounded;
    } else if (!has_min) {
      fail(begin, "expected {{m}}, {{m,}}, {{,n}} or {{m,n}}");
    }
    skip();
    if (!take("}")) fail(begin, "expected {{m}}, {{m,}}, {{,n}} or {{m,n}}");
    if (min > kMost || (max > kMost && max != kUnbounded)) fail(begin, "counts over {} are not supported", kMost);
    if (min > max) fail(begin, "the count {{{},{}}} is out of order", min, max);
  }

  Item element(int depth) {
    count_part();
    const size_t begin = at_;
    const char c = text_[at_];
    if (take("(")) {
      if (sees("=") || sees("?=")) refuse(begin, "look-ahead is not supported");
      Item item = choice(depth + 1);
      if (!take(")")) fail(begin, "'(' is not closed");
      return item;
    }
    if (take("\"")) {
      std::string literal;
      while (!take("\"")) {
        if (at_ >= text_.size() || text_[at_] == '\n') fail(begin, "the literal is not closed");
        append_utf8(character(), literal);
      }
      return regex(parts_.regexes.literal(literal));
    }
    if (take("[")) return regex(encoder_.one_of(char_class(begin), Encoding::kUtf8));
    if (take(".")) return regex(encoder_.any(Encoding::kUtf8));
    if (c == '<' || c == '!') return named_token(begin);
    if (is_name(c)) {
      const std::string_view name = read_name();
      return {.kind = Item::Kind::kRule, .value = rule_index(name, begin)};
    }
    if (c == '*' || c == '+' || c == '?' || c == '{') fail(begin, "nothing to repeat");
    fail(begin, "unexpected {}", quote(text_.substr(begin, utf8_length(c))));
  }

  // <name>, <[id]>, or with '!' before it any other token.
  Item named_token(size_t begin) {
    NamedToken token{.other = take("!")};
    const size_t name = at_;
    if (!take("<")) fail(begin, "expected <name> or <[id]> after '!'");
    const size_t end = text_.find_first_of(">\n", at_);
    if (end == text_.npos || text_[end] != '>' || end == at_) fail(begin, "expected <name>");
    std::string_view number = text_.substr(at_, end - at_);
    at_ = end + 1;
    if (number.starts_with('[')) {
      number = number.substr(1, number.size() - (number.ends_with(']') ? 2 : 1));
      TokenId id = 0;
      const auto [rest, error] = std::from_chars(number.data(), number.data() + number.size(), id);
      if (error != std::errc() || rest != number.data() + number.size() || text_[end - 1] != ']' || id < 0)
        fail(begin, "expected <[id]> with the number of a token");
      token.id = id;
    } else {
      token.spelling = text_.substr(name, at_ - name);
    }
    return {.kind = Item::Kind::kSpecial, .value = parts_.add_special(token)};
  }

  static Item regex(RegexId regex) { return {.kind = Item::Kind::kRegex, .value = regex}; }

  CharSet char_class(size_t begin) {
    const bool negated = take("^");
    CharSet set;
    while (!take("]")) {
      if (at_ >= text_.size()) fail(begin, "the class is not closed");
      const size_t here = at_;
      const char32_t first = character();
      char32_t last = first;
      if (sees("-") && !sees("-]")) {
        take("-");
        if (at_ >= text_.size()) fail(begin, "the class is not closed");
        last = character();
        if (last < first) fail(here, "the range is out of order");
      }
      set.add(first, last);
    }
    return negated ? set.complement() : set;
  }

  char32_t hex(size_t digits, size_t begin) {
    char32_t value = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      const char c = at_ < text_.size() ? text_[at_] : ' ';
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) fail(begin, "expected {} hexadecimal digits", digits);
      value = value * 16 + static_cast<char32_t>(digit);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) fail(begin, "there is no such character");
    return value;
  }

  char32_t character() {
    const size_t begin = at_;
    const char32_t c = utf8_next(text_, at_);
    if (c != '\\') return c;
    if (at_ >= text_.size()) fail(begin, "unexpected end");
    const char32_t escaped = utf8_next(text_, at_);
    switch (escaped) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return hex(2, begin);
      case 'u':
        return hex(4, begin);
      case 'U':
        return hex(8, begin);
      default:
        break;
    }
    if ((escaped | 32) >= 'a' && (escaped | 32) <= 'z') fail(begin, "unknown escape \\{}", static_cast<char>(escaped));
    if (escaped >= '0' && escaped <= '9') fail(begin, "unknown escape \\{}", static_cast<char>(escaped));
    return escaped;
  }

  GrammarParts& parts_;
  CharEncoder& encoder_;
  std::string_view text_;
  const Limits& limits_;
  size_t at_ = 0;
  int repeats_ = 0;
  size_t parts_read_ = 0;
  std::vector<Rule> rules_;
  std::map<std::string, uint32_t, std::less<>> indices_;
};

// Rules that do not refer back to themselves become regexes or are put in place of their names.
class GbnfConverter {
 public:
  GbnfConverter(GrammarParts& parts, std::vector<Rule> rules) : parts_(parts), rules_(std::move(rules)) {
    for (const Rule& rule : rules_) indices_.push_back(parts_.add_rule(rule.name));
    done_.resize(rules_.size(), Progress::kNotYet);
  }

  NodeId convert(uint32_t root) {
    const NodeId node = rule(root, 0);
    while (!later_.empty()) {
      const uint32_t next = later_.back();
      later_.pop_back();
      rule(next, 0);
    }
    return node;
  }

 private:
  enum class Progress : uint8_t { kNotYet, kLater, kNow, kDone };
  static constexpr int kDeepest = 200;  // rules in place of their names

  NodeId rule(uint32_t index, int depth) {
    if (done_[index] == Progress::kNotYet && depth > kDeepest) {
      done_[index] = Progress::kLater;
      later_.push_back(index);
    }
    if (done_[index] == Progress::kNotYet || (done_[index] == Progress::kLater && depth == 0)) {
      done_[index] = Progress::kNow;
      const NodeId body = without_left_recursion(index, depth);
      parts_.rules[indices_[index]] = body;
      done_[index] = Progress::kDone;
    }
    const NodeId body = parts_.rules[indices_[index]];
    if (done_[index] == Progress::kDone && parts_.nodes[body].kind == NodeKind::kRegex) return body;
    return parts_.nodes.rule(indices_[index]);
  }

  // a ::= a x | a y | b is b (x | y)*.
  NodeId without_left_recursion(uint32_t index, int depth) {
    std::vector<NodeId> bases, suffixes;
    for (const Item& alternative : rules_[index].body.parts) {
      const bool left = !alternative.parts.empty() && alternative.parts[0].kind == Item::Kind::kRule &&
                        alternative.parts[0].value == index;
      (left ? suffixes : bases).push_back(sequence(alternative, left ? 1 : 0, depth));
    }
    const NodeId base = parts_.fused_choice(std::move(bases));
    if (suffixes.empty()) return base;
    const NodeId repeated = parts_.fused_repeat(parts_.fused_choice(std::move(suffixes)), 0, kUnbounded);
    return parts_.fused_sequence(base, repeated);
  }

  NodeId sequence(const Item& item, size_t skip, int depth) {
    std::vector<NodeId> made;
    for (size_t i = skip; i < item.parts.size(); ++i) made.push_back(node(item.parts[i], depth));
    NodeId all = parts_.empty();
    for (size_t i = made.size(); i-- > 0;) all = parts_.fused_sequence(made[i], all);
    return all;
  }

  NodeId node(const Item& item, int depth) {
    switch (item.kind) {
      case Item::Kind::kRegex:
        return parts_.nodes.regex(item.value);
      case Item::Kind::kRule:
        return rule(item.value, depth + 1);
      case Item::Kind::kSpecial:
        return parts_.nodes.special(item.value);
      case Item::Kind::kSequence:
        return sequence(item, 0, depth);
      case Item::Kind::kChoice: {
        std::vector<NodeId> made;
        for (const Item& part : item.parts) made.push_back(node(part, depth));
        return parts_.fused_choice(std::move(made));
      }
      case Item::Kind::kRepeat:
        return parts_.fused_repeat(node(item.parts[0], depth), item.min, item.max);
    }
    return parts_.nothing();
  }

  GrammarParts& parts_;
  std::vector<Rule> rules_;
  std::vector<uint32_t> indices_;  // in parts_.rules
  std::vector<Progress> done_;
  std::vector<uint32_t> later_;
};

}  // namespace

NodeId add_gbnf(GrammarParts& parts, CharEncoder& encoder, std::string_view text, const Limits& limits) {
  Reader reader(parts, encoder, text, limits);
  std::vector<Rule> rules = reader.read();
  return GbnfConverter(parts, std::move(rules)).convert(reader.root());
}

}  // namespace quire::grammar
