#include "jinja/syntax/lexer.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "jinja/value/unicode.h"

namespace quire::jinja {
namespace {

class Lexer {
 public:
  Lexer(std::string_view source, std::string_view name) : s_(source), name_(name) {}

  std::vector<Token> run() {
    while (at_ < s_.size()) text();
    push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw invalid("{}:{}: {}", name_, line_, what); }
  void push(TokenKind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text), {}}); }
  bool starts(std::string_view what) const { return s_.substr(at_).starts_with(what); }
  char peek(size_t ahead = 0) const { return at_ + ahead < s_.size() ? s_[at_ + ahead] : '\0'; }

  void advance(size_t n) {
    line_ += static_cast<int>(std::count(s_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         s_.begin() + static_cast<std::ptrdiff_t>(at_ + n), '\n'));
    at_ += n;
  }

  void skip_space() {
    while (at_ < s_.size()) {
      size_t next = at_;
      if (!is_space(utf8_decode(s_, next))) return;
      advance(next - at_);
    }
  }

  // The end of the white space that starts at `from`.
  size_t behind_space(size_t from) const {
    while (from < s_.size()) {
      size_t next = from;
      if (!is_space(utf8_decode(s_, next))) break;
      from = next;
    }
    return from;
  }

  // The end of a `{% raw %}` at `from`; 0: there is none.
  size_t raw_tag(size_t from, std::string_view word) const {
    size_t i = from + 2;
    if (i < s_.size() && (s_[i] == '-' || s_[i] == '+')) ++i;
    i = behind_space(i);
    if (!s_.substr(i).starts_with(word)) return 0;
    i = behind_space(i + word.size());
    const bool ending = word == "endraw";
    if (s_.substr(i).starts_with("-%}")) return behind_space(i + 3);
    if (ending && s_.substr(i).starts_with("+%}")) return i + 3;
    if (!s_.substr(i).starts_with("%}")) return 0;
    i += 2;
    return ending && i < s_.size() && s_[i] == '\n' ? i + 1 : i;
  }

  // Adds the data up to the tag at `tag`; the tag's sign and lstrip_blocks decide which white space stays.
  void data_before(size_t tag, bool is_print) {
    std::string_view data = s_.substr(at_, tag - at_);
    const char sign = tag + 2 < s_.size() ? s_[tag + 2] : '\0';
    if (sign == '-') {
      data = strip(data, nullptr, false, true);
    } else if (sign != '+' && !is_print) {
      const size_t line_start = data.rfind('\n') + 1;  // npos + 1 = 0
      if ((line_start > 0 || line_starting_) && strip(data.substr(line_start), nullptr, true, false).empty())
        data = data.substr(0, line_start);
    }
    if (!data.empty()) push(TokenKind::kData, std::string(data));
    advance(tag - at_);
  }

  // Continues after a tag that ended at `end`; trim_blocks drops a line end there.
  void tag_ends_at(size_t end) {
    advance(end - at_);
    line_starting_ = at_ > 0 && s_[at_ - 1] == '\n';
  }

  void text() {
    size_t tag = at_;
    while ((tag = s_.find('{', tag)) != std::string_view::npos) {
      const char next = tag + 1 < s_.size() ? s_[tag + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    }
    if (tag == std::string_view::npos) {
      push(TokenKind::kData, std::string(s_.substr(at_)));
      advance(s_.size() - at_);
      return;
    }
    const char kind = s_[tag + 1];
    data_before(tag, kind == '{');
    if (kind == '%') {
      if (const size_t body = raw_tag(tag, "raw")) return raw(body);
    }
    const bool has_sign = peek(2) == '-' || peek(2) == '+';
    if (kind == '#') return comment(tag + 2 + (has_sign ? 1 : 0));
    push(kind == '{' ? TokenKind::kPrintBegin : TokenKind::kBlockBegin, "");
    advance(has_sign ? 3 : 2);
    code(kind == '{');
  }

  void raw(size_t body) {
    tag_ends_at(body);
    for (size_t tag = at_; (tag = s_.find("{%", tag)) != std::string_view::npos; ++tag) {
      if (const size_t end = raw_tag(tag, "endraw")) {
        data_before(tag, false);
        return tag_ends_at(end);
      }
    }
    fail("Missing end of raw directive");
  }

  void comment(size_t body) {
    const size_t end = s_.find("#}", body);
    if (end == std::string_view::npos) fail("Missing end of comment tag");
    const char sign = end > body ? s_[end - 1] : '\0';
    size_t behind = end + 2;
    if (sign == '-') {
      behind = behind_space(behind);
    } else if (sign != '+' && behind < s_.size() && s_[behind] == '\n') {
      ++behind;
    }
    tag_ends_at(behind);
  }

  // Skips the end of the tag, if it is here and no bracket is open.
  bool code_ends(bool is_print) {
    const std::string_view close = is_print ? "}}" : "%}";
    const bool minus = peek() == '-' && s_.substr(at_ + 1).starts_with(close);
    const bool plus = !is_print && peek() == '+' && s_.substr(at_ + 1).starts_with(close);
    if (!brackets_.empty() || !(minus || plus || starts(close))) return false;
    push(is_print ? TokenKind::kPrintEnd : TokenKind::kBlockEnd, std::string(close));
    size_t end = at_ + (minus || plus ? 3 : 2);
    if (minus) {
      end = behind_space(end);
    } else if (!plus && !is_print && end < s_.size() && s_[end] == '\n') {
      ++end;
    }
    tag_ends_at(end);
    return true;
  }

  void code(bool is_print) {
    brackets_.clear();
    while (true) {
      skip_space();
      if (code_ends(is_print)) return;
      if (at_ >= s_.size()) return;  // the parser reports what is missing
      size_t next = at_;
      const char32_t c = utf8_decode(s_, next);
      if (c >= '0' && c <= '9') {
        number();
      } else if (c == '_' || is_letter(c)) {
        identifier();
      } else if (c == '"' || c == '\'') {
        quoted(static_cast<char>(c));
      } else {
        op();
      }
    }
  }

  void identifier() {
    const size_t start = at_;
    size_t end = at_;
    while (end < s_.size()) {
      size_t next = end;
      const char32_t c = utf8_decode(s_, next);
      if (c != '_' && !is_letter(c) && !is_digit(c)) break;
      end = next;
    }
    push(TokenKind::kName, std::string(s_.substr(start, end - start)));
    at_ = end;
  }

  // Reads digits with single underscores between them, and drops the underscores.
  std::string digits(bool (*is)(char)) {
    std::string out;
    while (is(peek()) || (peek() == '_' && !out.empty() && is(peek(1)))) {
      if (peek() != '_') out.push_back(peek());
      ++at_;
    }
    return out;
  }

  void number() {
    const auto decimal = [](char c) { return c >= '0' && c <= '9'; };
    const auto hex = [](char c) { return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); };
    const char second = static_cast<char>(peek(1) | 0x20);
    const bool prefixed = peek() == '0' && (second == 'x' || second == 'o' || second == 'b');
    if (prefixed) {
      at_ += 2;
      const unsigned base = second == 'x' ? 16 : second == 'o' ? 8 : 2;
      return integer(digits(hex), base);
    }
    std::string text = digits(decimal);
    const bool after_dot =
        !tokens_.empty() && tokens_.back().kind == TokenKind::kOperator && tokens_.back().text == ".";
    bool is_float = false;
    if (!after_dot && peek() == '.' && decimal(peek(1))) {
      ++at_;
      text += "." + digits(decimal);
      is_float = true;
    }
    const size_t sign = peek(1) == '+' || peek(1) == '-' ? 1 : 0;
    if (!after_dot && (peek() | 0x20) == 'e' && decimal(peek(1 + sign))) {
      text += std::string("e") + (sign != 0 && peek(1) == '-' ? "-" : "");
      at_ += 1 + sign;
      text += digits(decimal);
      is_float = true;
    }
    if (!is_float) {
      if (text.size() > 1 && text[0] == '0' && text.find_first_not_of('0') != std::string::npos)
        fail("a number must not start with zero: " + text);
      return integer(text, 10);
    }
    double value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec == std::errc::result_out_of_range) {  // Python: inf, or zero for tiny ones
      const size_t e = text.find('e');
      value = e != std::string::npos && text[e + 1] == '-' ? 0 : std::numeric_limits<double>::infinity();
    }
    tokens_.push_back({TokenKind::kNumber, line_, text, value});
  }

  void integer(const std::string& text, unsigned base) {
    if (text.empty()) fail("a number has no digits");
    Int value = 0;
    for (const char c : text) {
      const unsigned digit = c <= '9' ? static_cast<unsigned>(c - '0') : static_cast<unsigned>((c | 0x20) - 'a' + 10);
      if (digit >= base) fail(fmt::format("'{}' is not a digit of base {}", c, base));
      if (__builtin_mul_overflow(value, static_cast<Int>(base), &value) ||
          __builtin_add_overflow(value, static_cast<Int>(digit), &value))
        fail("the integer is too large");
    }
    tokens_.push_back({TokenKind::kNumber, line_, text, value});
  }

  void quoted(char quote) {
    const int first_line = line_;
    std::string value;
    size_t i = at_ + 1;
    for (; i < s_.size() && s_[i] != quote; ++i) {
      if (s_[i] != '\\') {
        value.push_back(s_[i]);
      } else if (++i < s_.size()) {
        i = escape(i, value);
      }
    }
    if (i >= s_.size()) fail("the string is not closed");
    advance(i + 1 - at_);
    tokens_.push_back({TokenKind::kText, first_line, std::move(value), {}});
  }

  // Reads the escape whose letter is at `i`; returns the position of its last character.
  size_t escape(size_t i, std::string& out) {
    static constexpr std::string_view kLetters = "\n\\'\"abfnrtv";
    static constexpr std::string_view kMeaning = "\n\\'\"\a\b\f\n\r\t\v";
    const char c = s_[i];
    if (c == '\n') return i;  // an escaped line end joins lines
    if (const size_t k = kLetters.find(c); k != std::string_view::npos) {
      out.push_back(kMeaning[k]);
      return i;
    }
    if (c >= '0' && c <= '7') {
      char32_t value = 0;
      size_t end = i;
      for (; end < i + 3 && end < s_.size() && s_[end] >= '0' && s_[end] <= '7'; ++end)
        value = value * 8 + static_cast<char32_t>(s_[end] - '0');
      append_utf8(value, out);
      return end - 1;
    }
    const size_t length = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (c == 'N') fail("\\N{...} escapes are not supported; write \\u and the number");
    if (length == 0) {  // Python keeps unknown escapes
      out.push_back('\\');
      out.push_back(c);
      return i;
    }
    uint32_t value = 0;
    const char* first = s_.data() + i + 1;
    if (i + length >= s_.size() || std::from_chars(first, first + length, value, 16).ptr != first + length)
      fail(fmt::format("truncated \\{} escape", c));
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) fail(fmt::format("\\{} escape is not a character", c));
    append_utf8(value, out);
    return i + length;
  }

  void op() {
    static constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                      "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                      ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view text : kOperators) {
      if (!starts(text)) continue;
      const char c = text[0];
      if (c == '(' || c == '[' || c == '{') {
        brackets_.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
      } else if (c == ')' || c == ']' || c == '}') {
        if (brackets_.empty()) fail(fmt::format("unexpected '{}'", c));
        if (brackets_.back() != c) fail(fmt::format("unexpected '{}', expected '{}'", c, brackets_.back()));
        brackets_.pop_back();
      }
      push(TokenKind::kOperator, std::string(text));
      at_ += text.size();
      return;
    }
    size_t next = at_;
    utf8_decode(s_, next);
    fail(fmt::format("unexpected character '{}'", s_.substr(at_, next - at_)));
  }

  std::string_view s_, name_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // at_ is at the start of a line
  std::string brackets_;       // the expected closing brackets
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, std::string_view name) { return Lexer(source, name).run(); }

}  // namespace quire::jinja
