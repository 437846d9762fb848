#include "jinja/syntax/token_reader.h"

namespace quire::jinja {

bool TokenReader::is_word_of(Words words) const {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) { return is_word(word); });
}

void TokenReader::expect_op(std::string_view text) {
  if (!skip_op(text)) fail(fmt::format("expected '{}', found {}", text, found()));
}

std::string TokenReader::expect_name() {
  if (now().kind != TokenKind::kName) fail("expected a name, found " + found());
  return next().text;
}

void TokenReader::expect(TokenKind kind, std::string_view text) {
  if (now().kind != kind) fail(fmt::format("expected '{}', found {}", text, found()));
  ++at_;
}

void TokenReader::fail_at(int line, const std::string& what) const { throw invalid("{}:{}: {}", name_, line, what); }

std::string TokenReader::found() const {
  switch (now().kind) {
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kPrintEnd:
      return "'}}'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kText:
      return "a string";
    default:
      return "'" + now().text + "'";
  }
}

TokenReader::Nesting::Nesting(TokenReader& in) : in_(in) {
  if (++in_.nesting_ > kMaxNesting) in_.fail(fmt::format("nested more than {} deep", kMaxNesting));
}

}  // namespace quire::jinja
