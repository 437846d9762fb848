#include "parsers/value_json.h"

#include "base/text/utf8.h"
#include "json/quote.h"
#include "parsers/call_stage.h"
#include "parsers/json_mender.h"

namespace quire {
namespace {

constexpr int kMaxDepth = 64;

// A reader of literals that differ from JSON in their strings, words and keys.
class Literals {
 public:
  explicit Literals(std::string_view text) : text_(text) {}

  std::optional<std::string> all() {
    skip_space();
    std::string out;
    if (!value(out, 0)) return std::nullopt;
    skip_space();
    return at_ == text_.size() ? std::optional(std::move(out)) : std::nullopt;
  }

 protected:
  ~Literals() = default;
  virtual bool string(std::string& out) = 0;                       // at its quote
  virtual bool key(std::string& out) = 0;                          // at its first byte
  virtual bool word(std::string_view word, std::string& out) = 0;  // True, null
  virtual bool is_quote(char c) const = 0;

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_space() { at_ = std::min(text_.find_first_not_of(kSpace, at_), text_.size()); }
  bool take(char c) {
    skip_space();
    if (peek() != c) return false;
    ++at_;
    skip_space();
    return true;
  }

  bool value(std::string& out, int depth) {
    if (depth >= kMaxDepth) return false;
    const char c = peek();
    if (is_quote(c)) return string(out);
    if (c == '[' || c == '(') return list(c == '[' ? ']' : ')', out, depth);
    if (c == '{') return object(out, depth);
    const size_t end = std::min(text_.find_first_of(",:]}) \t\r\n", at_), text_.size());
    const std::string_view run = text_.substr(at_, end - at_);
    at_ = end;
    if (word(run, out)) return true;
    if (run.empty() || run.find_first_not_of("0123456789+-.eE") != std::string_view::npos || !is_json(run))
      return false;
    out += run;
    return true;
  }

  bool list(char end, std::string& out, int depth) {
    ++at_;
    out += '[';
    for (bool first = true; !take(end); first = false) {
      if (!first) {
        if (!take(',')) return false;
        if (take(end)) break;  // [1, 2,]
        out += ", ";
      }
      skip_space();
      if (!value(out, depth + 1)) return false;
    }
    out += ']';
    return true;
  }

  bool object(std::string& out, int depth) {
    ++at_;
    out += '{';
    for (bool first = true; !take('}'); first = false) {
      if (!first) {
        if (!take(',')) return false;
        if (take('}')) break;
        out += ", ";
      }
      skip_space();
      if (!key(out) || !take(':')) return false;
      out += ": ";
      if (!value(out, depth + 1)) return false;
    }
    out += '}';
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
};

class PythonLiterals final : public Literals {
 public:
  using Literals::Literals;

 private:
  bool is_quote(char c) const override { return c == '\'' || c == '"'; }
  bool key(std::string& out) override { return is_quote(peek()) && string(out); }
  bool word(std::string_view word, std::string& out) override {
    if (word == "True" || word == "true")
      out += "true";
    else if (word == "False" || word == "false")
      out += "false";
    else if (word == "None" || word == "null")
      out += "null";
    else
      return false;
    return true;
  }

  bool string(std::string& out) override {
    const char quote = text_[at_];
    std::string content;
    for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (text_[at_] != '\\') {
        content += text_[at_];
      } else if (++at_ == text_.size() || !escape(content)) {
        return false;
      }
    }
    if (at_ == text_.size()) return false;
    ++at_;
    out += json_quoted(content);
    return true;
  }

  // After a backslash.
  bool escape(std::string& content) {
    static constexpr std::string_view kLetters("nrtbfav0\\'\"", 11), kMeant("\n\r\t\b\f\a\v\0\\'\"", 11);
    const char c = text_[at_];
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits > 0) return character(digits, content);
    const size_t letter = kLetters.find(c);
    if (c == '\n') return true;  // a continued line
    if (letter == std::string_view::npos) content += '\\';
    content += letter == std::string_view::npos ? c : kMeant[letter];
    return true;
  }

  bool character(int digits, std::string& content) {
    uint32_t code = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = ++at_ < text_.size() ? text_[at_] : '\0';
      const int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
      if (digit < 0) return false;
      code = code << 4 | static_cast<uint32_t>(digit);
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    append_utf8(static_cast<char32_t>(code), content);
    return true;
  }
};

class GemmaLiterals final : public Literals {
 public:
  GemmaLiterals(std::string_view text, char quote) : Literals(text), quote_(quote) {}

 private:
  bool is_quote(char c) const override { return c == quote_; }
  bool key(std::string& out) override {
    if (is_quote(peek())) return string(out);
    const size_t end = text_.find_first_of(":,{}[]", at_);
    if (end == std::string_view::npos || end == at_) return false;
    out += json_quoted(trimmed(text_.substr(at_, end - at_)));
    at_ = end;
    return true;
  }
  bool word(std::string_view word, std::string& out) override {
    if (word == "None") word = "null";
    if (word != "true" && word != "false" && word != "null") return false;
    out += word;
    return true;
  }
  bool string(std::string& out) override {
    const size_t end = text_.find(quote_, at_ + 1);
    if (end == std::string_view::npos) return false;
    out += json_quoted(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return true;
  }

  const char quote_;
};

}  // namespace

std::string json_escaped(std::string_view text) {
  std::string out = json_quoted(text);
  out.pop_back();
  out.erase(0, 1);
  return out;
}

std::string json_quoted(std::string_view text) {
  std::string out;
  append_json_string(text, out);
  return out;
}

bool is_json(std::string_view text) {
  try {
    parse_json(text, "", {.depth = kMaxDepth});
    return true;
  } catch (const JsonError&) {
    return false;
  }
}

std::string untyped_value(std::string_view text, ValueTypes types) {
  const std::string_view value = trimmed(text);
  const bool strings = types.has(ValueTypes::kString);
  std::optional<std::string> json = python_value(value);
  if (json && !is_json(value) && json->starts_with('"')) json.reset();  // 'text' is no value of tags
  if (!json && !strings && value.starts_with('{')) json = mended_object(value);
  const bool any = !strings || types.set == ValueTypes::kAny;
  if (json && (any || types.has_type_of(parse_json(*json, "", {.depth = 2 * kMaxDepth})))) return *json;
  return json_quoted(text);
}

std::optional<std::string> python_value(std::string_view text) {
  if (is_json(trimmed(text))) return std::string(trimmed(text));
  return PythonLiterals(text).all();
}

std::optional<std::string> gemma_value(std::string_view text, char quote) {
  if (is_json(trimmed(text))) return std::string(trimmed(text));
  return GemmaLiterals(text, quote).all();
}

}  // namespace quire
