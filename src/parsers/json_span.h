// Where a JSON value ends, byte by byte. It counts brackets and does not check the rest: whoever reads the value does.
#pragma once

#include <cstdint>

namespace quire {

class JsonSpan {
 public:
  enum class Step : uint8_t { kInside, kLast, kAfter };  // kAfter: a number or word ended before this byte
  Step step(char c) {
    if (string_) {
      if (escape_) {
        escape_ = false;
      } else if (c == '\\') {
        escape_ = true;
      } else if (c == '"') {
        string_ = false;
        return depth_ == 0 ? Step::kLast : Step::kInside;
      }
      return Step::kInside;
    }
    switch (c) {
      case '"':
        string_ = true;
        return Step::kInside;
      case '{':
      case '[':
        ++depth_;
        return Step::kInside;
      case '}':
      case ']':
        if (depth_ == 0) return Step::kAfter;
        return --depth_ == 0 ? Step::kLast : Step::kInside;
      case ',':
      case ' ':
      case '\t':
      case '\r':
      case '\n':
        return depth_ == 0 ? Step::kAfter : Step::kInside;
      default:
        return Step::kInside;
    }
  }
  bool in_string() const { return string_; }

 private:
  int64_t depth_ = 0;
  bool string_ = false, escape_ = false;
};

}  // namespace quire
