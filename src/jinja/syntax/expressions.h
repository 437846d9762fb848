// Parses tokens into expressions. All functions throw Error "NAME:LINE: what".
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "jinja/syntax/ast.h"
#include "jinja/syntax/token_reader.h"

namespace quire::jinja {

class ExpressionParser {
 public:
  // Reads from `in` and adds names to program.symbols. Both must outlive the parser.
  ExpressionParser(TokenReader& in, Program& program) : in_(in), program_(program) {}

  // with_condition: allows `a if b else c`.
  ExpressionPtr expression(bool with_condition = true);
  // Expressions separated by commas are a tuple. `stop`: the words that may end it.
  ExpressionPtr tuple(bool with_condition = true, Words stop = {}, bool in_parentheses = false);
  ExpressionPtr filter(ExpressionPtr input);       // "| name(arguments)"
  ExpressionPtr filter_call(ExpressionPtr input);  // "name(arguments)"

  Symbol symbol(const std::string& name);

  int soft = 0;           // inside an if: unknown filters fail when they run, as in jinja2
  Node* macro = nullptr;  // the enclosing macro; notes its use of caller, kwargs and varargs

 private:
  ExpressionPtr make(Op op, int line, std::vector<ExpressionPtr> operands = {}) const;
  void deepen(Expression& e, const ExpressionPtr& child) const;
  ExpressionPtr make(Op op, int line, ExpressionPtr a, ExpressionPtr b) const;
  ExpressionPtr make_unary(Op op, int line, ExpressionPtr a) const;
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  std::optional<Comparison> comparison_sign();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filter);
  ExpressionPtr constant(int line, Value value) const;
  static Value text_constant(std::string text);
  ExpressionPtr primary();
  ExpressionPtr name_or_constant();
  std::vector<ExpressionPtr> items(std::string_view close, bool pairs);
  ExpressionPtr postfix(ExpressionPtr e);
  ExpressionPtr subscript(int line, ExpressionPtr e);
  void arguments(Expression& e);
  ExpressionPtr call(ExpressionPtr callee);
  std::string dotted_name();
  ExpressionPtr test(ExpressionPtr input);

  TokenReader& in_;
  Program& program_;
  std::unordered_map<std::string, Symbol> symbol_ids_;
};

}  // namespace quire::jinja
