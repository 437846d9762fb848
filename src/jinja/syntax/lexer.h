// Splits a template's source into tokens, with trim_blocks and lstrip_blocks, as in transformers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jinja/value/value.h"

namespace quire::jinja {

enum class TokenKind : uint8_t {
  kData,
  kPrintBegin,
  kPrintEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kText,
  kNumber,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind;
  int line;
  std::string text;  // data, a name, a string's value, an operator
  Value number;      // kNumber: int or float
};

// The line ends of `source` must be \n. The last token is kEnd. Throws Error "NAME:LINE: what".
std::vector<Token> tokenize(std::string_view source, std::string_view name);

}  // namespace quire::jinja
