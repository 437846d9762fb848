// Reads a template's tokens in order and reports errors about them.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/syntax/lexer.h"

namespace quire::jinja {

using Words = std::initializer_list<std::string_view>;

class TokenReader {
 public:
  // tokens: the lexer's; the last is kEnd. name: the template's, for errors; must outlive the reader.
  TokenReader(std::vector<Token> tokens, std::string_view name) : tokens_(std::move(tokens)), name_(name) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token& next() { return tokens_[at_++]; }  // returns now() and advances; not at kEnd

  bool is_op(std::string_view text) const { return now().kind == TokenKind::kOperator && now().text == text; }
  bool is_word(std::string_view text) const { return now().kind == TokenKind::kName && now().text == text; }
  bool is_word_of(Words words) const;
  bool skip_op(std::string_view text) { return is_op(text) && (++at_, true); }
  bool skip_word(std::string_view text) { return is_word(text) && (++at_, true); }

  // Each skips the expected token or throws Error "NAME:LINE: what".
  void expect_op(std::string_view text);
  std::string expect_name();
  void expect(TokenKind kind, std::string_view text);

  [[noreturn]] void fail(const std::string& what) const { fail_at(now().line, what); }
  [[noreturn]] void fail_at(int line, const std::string& what) const;
  std::string found() const;  // describes now() for errors

  // Held while nested syntax is read: bounds the recursion. Throws Error.
  class Nesting {
   public:
    explicit Nesting(TokenReader& in);
    ~Nesting() { --in_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    TokenReader& in_;
  };

 private:
  std::vector<Token> tokens_;
  std::string_view name_;
  size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace quire::jinja
