#include "parsers/json_mender.h"

#include <utility>

#include "parsers/call_stage.h"
#include "parsers/value_json.h"

namespace quire {
namespace {

bool is_white(char c) { return kSpace.find(c) != std::string_view::npos; }

bool is_hex(char c) { return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f'); }

// A number, true, false or null, or Python's word for it, as JSON; empty if the word is none.
std::string scalar(std::string_view word) {
  if (word == "True") return "true";
  if (word == "False") return "false";
  if (word == "None") return "null";
  if (word.find_first_of("{[\"") != std::string_view::npos) return {};
  return is_json(word) ? std::string(word) : std::string();
}

}  // namespace

size_t JsonMender::add(std::string_view run, std::string& out) {
  const bool inside = in_string();
  size_t size = 0;
  while (size < run.size() && !ended() && in_string() == inside) step(run[size++], out);
  return size;
}

void JsonMender::step(char c, std::string& out) {
  if (stack_.empty()) return open('{', out);
  // Other control characters mean nothing outside strings.
  if (state_ != State::kString && state_ != State::kKeyString && static_cast<unsigned char>(c) < ' ' && !is_white(c))
    return;
  switch (state_) {
    case State::kKey:
      return before_key(c, out);
    case State::kKeyString:
    case State::kString:
      return string(c, out);
    case State::kKeyEnd:
      return key_end(c, out);
    case State::kBareKey:
      return bare_key(c, out);
    case State::kValue:
      return before_value(c, out);
    case State::kStringEnd:
      return string_end(c, out);
    case State::kStringComma:
      return string_comma(c, out);
    case State::kBare:
      return bare_value(c, out);
    case State::kAfter:
      return after_value(c, out);
    case State::kEnded:
      return;
  }
}

// ---- brackets and commas ----

void JsonMender::open(char bracket, std::string& out) {
  if (in_list()) begin_element(out);
  stack_ += bracket;
  lists_ += bracket == '[';
  out += bracket;
  empty_ = true;
  state_ = bracket == '[' ? State::kValue : State::kKey;
}

// A key, or an element of a list, begins.
void JsonMender::begin_element(std::string& out) {
  if (!empty_) out += ',';
  out += space_;
  space_.clear();
  comma_ = empty_ = false;
}

void JsonMender::next_element() { state_ = in_list() ? State::kValue : State::kKey; }

// A closing bracket: it closes what is open inside of its own, and is left out if it has none.
void JsonMender::closing(char c, std::string& out) {
  if (c == ']' && lists_ == 0) {
    if (stack_.back() == 'x') pop(out);
    return;
  }
  out += space_;
  space_.clear();
  comma_ = false;
  while (c == ']' ? stack_.back() != '[' : stack_.back() == '[') pop(out);
  pop(out);
}

void JsonMender::pop(std::string& out) {
  const char bracket = stack_.back();
  stack_.pop_back();
  lists_ -= bracket == '[';
  if (bracket != 'x') {
    out += bracket == '[' ? ']' : '}';
    empty_ = false;  // The bracket around it has an element now.
  }
  state_ = stack_.empty() ? State::kEnded : State::kAfter;
}

void JsonMender::after_value(char c, std::string& out) {
  if (is_white(c)) {
    out += c;
  } else if (c == ',') {
    comma_ = true;
    next_element();
  } else if (c == '}' || c == ']') {
    closing(c, out);
  } else if (c != ':') {  // a comma is missing
    next_element();
    step(c, out);
  }
}

// ---- keys ----

void JsonMender::before_key(char c, std::string& out) {
  if (is_white(c)) {
    (comma_ ? space_ : out) += c;
  } else if (c == '"' || c == '\'') {
    begin_element(out);
    key_quoted_ = true;
    begin_string(c, State::kKeyString, out);
  } else if (c == '}' || c == ']') {
    closing(c, out);
  } else if (c == '{' || c == '[') {
    stack_ += 'x';
  } else if (c == ',') {
    comma_ = true;
  } else if (c != ':') {
    word_ = c;
    key_quoted_ = false;
    state_ = State::kBareKey;
  }
}

void JsonMender::bare_key(char c, std::string& out) {
  if (c != ':' && c != ',' && c != '}' && c != ']') {
    word_ += c;
    return;
  }
  begin_element(out);
  out += json_quoted(trimmed(word_)) + ':';
  state_ = State::kValue;
  if (c != ':') before_value(c, out);
}

// Of a key that has none.
void JsonMender::null_value(std::string& out) {
  out += "null";
  state_ = State::kAfter;
}

void JsonMender::end_key(std::string& out) {
  out += '"' + std::exchange(space_, {}) + ':';
  doubtful_ = false;
  state_ = State::kValue;
}

void JsonMender::key_end(char c, std::string& out) {
  if (is_white(c)) {
    space_ += c;
  } else if (c == ':') {
    end_key(out);
  } else if (std::string_view(",}\"'{[-0123456789").find(c) != std::string_view::npos) {  // its colon is missing
    end_key(out);
    before_value(c, out);
  } else {
    resume_string(State::kKeyString, out);
    string(c, out);
  }
}

// ---- values ----

void JsonMender::before_value(char c, std::string& out) {
  if (is_white(c)) {
    (comma_ ? space_ : out) += c;
  } else if (c == '{' || c == '[') {
    open(c, out);
  } else if (c == '"' || c == '\'') {
    if (in_list()) begin_element(out);
    begin_string(c, State::kString, out);
  } else if (c == ',' || c == '}' || c == ']') {
    if (!in_list()) {
      null_value(out);
      after_value(c, out);
    } else if (c == ',') {
      comma_ = true;
    } else {
      closing(c, out);
    }
  } else if (c != ':') {
    word_ = c;
    state_ = State::kBare;
  }
}

void JsonMender::bare_value(char c, std::string& out) {
  constexpr size_t kLongest = 64;  // the longest number before a missing comma; bounds the work for each quote
  const bool quote =
      (c == '"' || c == '\'') && is_white(word_.back()) && word_.size() <= kLongest && !scalar(trimmed(word_)).empty();
  if (c != ',' && c != '}' && c != ']' && !quote) {
    word_ += c;
    return;
  }
  end_bare(out);
  after_value(c, out);
}

void JsonMender::end_bare(std::string& out) {
  const std::string_view word = trimmed(word_);
  if (in_list()) begin_element(out);
  const std::string value = scalar(word);
  out += value.empty() ? json_quoted(word) : value;
  out += std::string_view(word_).substr(word.size());  // the white space after it
  state_ = State::kAfter;
}

// ---- strings ----

void JsonMender::begin_string(char quote, State state, std::string& out) {
  out += '"';
  quote_ = quote;
  doubtful_ = false;
  state_ = state;
}

void JsonMender::string(char c, std::string& out) {
  if (hex_) {
    if (is_hex(c)) {
      digits_ += c;
      if (digits_.size() == 4) end_escape(out);
      return;
    }
    end_escape(out);
  }
  if (!escape_) return plain(c, out);
  escape_ = false;
  if (c == 'u') {
    hex_ = true;
    return;
  }
  end_high(out);
  if (std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos) {
    out += '\\';
    out += c;
  } else if (c == '\'') {
    out += c;
  } else {  // a backslash of a path or of a regular expression
    out += "\\\\";
    plain(c, out);
  }
}

void JsonMender::plain(char c, std::string& out) {
  if (c == '\\') {
    escape_ = true;
    return;
  }
  end_high(out);
  if (c == quote_) {
    state_ = state_ == State::kKeyString ? State::kKeyEnd : State::kStringEnd;
  } else if (c == '"' || static_cast<unsigned char>(c) < ' ') {
    out += json_escaped({&c, 1});
  } else {
    out += c;
  }
}

// Four digits after \u, or fewer and then something else. Half a surrogate pair becomes U+FFFD.
void JsonMender::end_escape(std::string& out) {
  hex_ = false;
  const std::string digits = std::exchange(digits_, {});
  if (digits.size() < 4) {
    end_high(out);
    out += "\\\\u" + digits;
    return;
  }
  const auto code = std::stoul(digits, nullptr, 16);
  const bool low = code >= 0xdc00 && code < 0xe000;
  if (low && !high_.empty()) {
    out += std::exchange(high_, {}) + "\\u" + digits;
    return;
  }
  end_high(out);
  if (code >= 0xd800 && code < 0xdc00) {
    high_ = "\\u" + digits;
  } else {
    out += low ? "\\ufffd" : "\\u" + digits;
  }
}

void JsonMender::end_high(std::string& out) {
  if (!high_.empty()) out += "\\ufffd";
  high_.clear();
}

void JsonMender::end_string(std::string& out) {
  out += '"' + std::exchange(space_, {});
  doubtful_ = false;
  state_ = State::kAfter;
}

// A string ends at a quote that something follows which may follow a string. Other quotes are part of it.
void JsonMender::string_end(char c, std::string& out) {
  if (is_white(c)) {
    space_ += c;
  } else if (c == ',' && key_quoted_ && !in_list()) {
    space_ += c;
    state_ = State::kStringComma;
  } else if (c == ',' || c == '}' || (c == ']' && lists_ > 0) || c == quote_) {
    end_string(out);
    after_value(c, out);
  } else {
    resume_string(State::kString, out);
    string(c, out);
  }
}

// He said "no", then left: where no key follows, quote and comma are part of the string.
void JsonMender::string_comma(char c, std::string& out) {
  if (is_white(c)) {
    space_ += c;
  } else if (std::string_view("\"'},]").find(c) != std::string_view::npos) {
    end_string_and_comma(out);
    before_key(c, out);
  } else {
    resume_string(State::kString, out);
    string(c, out);
  }
}

void JsonMender::end_string_and_comma(std::string& out) {
  const size_t comma = space_.find(',');
  std::string after = space_.substr(comma + 1);
  space_.resize(comma);
  end_string(out);
  after_value(',', out);
  space_ = std::move(after);
}

void JsonMender::resume_string(State state, std::string& out) {
  out += json_escaped(std::string(1, quote_) + std::exchange(space_, {}));
  doubtful_ = true;
  state_ = state;
}

// ---- the end ----

void JsonMender::close(std::string& out) {
  if (state_ == State::kString || state_ == State::kKeyString) {
    if (hex_) end_escape(out);
    if (std::exchange(escape_, false)) out += "\\\\";
    end_high(out);
    state_ = state_ == State::kString ? State::kStringEnd : State::kKeyEnd;
  }
  if (state_ == State::kStringComma) space_.resize(space_.find(','));
  if (state_ == State::kStringEnd || state_ == State::kStringComma) end_string(out);
  if (state_ == State::kKeyEnd) end_key(out);
  if (state_ == State::kBare) end_bare(out);
  if (state_ == State::kBareKey) bare_key(':', out);
  if (state_ == State::kValue && !in_list()) null_value(out);
  while (!stack_.empty()) pop(out);
}

void JsonMender::cut(std::string& out) const {
  if (state_ == State::kKeyEnd || state_ == State::kStringEnd || state_ == State::kStringComma) out += '"';
  if (comma_) out += ',';
  out += space_;
  if (state_ == State::kBare || state_ == State::kBareKey) out += word_;
  out += high_;
  if (hex_) out += "\\u" + digits_;
  if (escape_) out += '\\';
}

std::optional<std::string> mended_object(std::string_view text) {
  text = trimmed(text);
  if (text.empty() || text == "null" || text == "None") return "{}";
  if (text.front() != '{') return std::nullopt;
  JsonMender mender;
  std::string object;
  while (!text.empty() && !mender.ended()) text.remove_prefix(mender.add(text, object));
  if (!trimmed(text).empty()) return std::nullopt;
  mender.close(object);
  return object;
}

std::optional<std::string> mended_string(std::string_view quoted) {
  const auto object = mended_object("{\"\":" + std::string(quoted) + "}");
  try {
    const Json value = object ? parse_json(*object, "")[""] : Json();
    if (value.is_string()) return value.get<std::string>();
  } catch (const JsonError&) {
  }
  return std::nullopt;
}

}  // namespace quire
