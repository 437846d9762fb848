#include "jinja/syntax/expressions.h"

#include <algorithm>
#include <array>

namespace quire::jinja {

Symbol ExpressionParser::symbol(const std::string& name) {
  const auto [it, added] = symbol_ids_.emplace(name, static_cast<Symbol>(program_.symbols.size()));
  if (added) program_.symbols.push_back(name);
  return it->second;
}

ExpressionPtr ExpressionParser::make(Op op, int line, std::vector<ExpressionPtr> operands) const {
  auto e = std::make_unique<Expression>();
  e->op = op;
  e->line = line;
  e->operands = std::move(operands);
  for (const ExpressionPtr& o : e->operands) deepen(*e, o);
  return e;
}

void ExpressionParser::deepen(Expression& e, const ExpressionPtr& child) const {
  if (child == nullptr) return;
  e.depth = std::max(e.depth, child->depth + 1);
  if (e.depth > kMaxExpressionDepth)
    in_.fail_at(e.line, fmt::format("the expression is more than {} deep", kMaxExpressionDepth));
}

ExpressionPtr ExpressionParser::make(Op op, int line, ExpressionPtr a, ExpressionPtr b) const {
  std::vector<ExpressionPtr> operands;
  operands.push_back(std::move(a));
  operands.push_back(std::move(b));
  return make(op, line, std::move(operands));
}

ExpressionPtr ExpressionParser::make_unary(Op op, int line, ExpressionPtr a) const {
  std::vector<ExpressionPtr> operands;
  operands.push_back(std::move(a));
  return make(op, line, std::move(operands));
}

// ---- from the lowest to the highest precedence

ExpressionPtr ExpressionParser::expression(bool with_condition) {
  const TokenReader::Nesting nesting(in_);
  if (!with_condition) return disjunction();
  const int line = in_.now().line;
  ExpressionPtr e = disjunction();
  while (in_.skip_word("if")) {
    ++soft;
    std::vector<ExpressionPtr> operands;
    operands.push_back(disjunction());
    operands.push_back(std::move(e));
    operands.push_back(in_.skip_word("else") ? expression() : nullptr);
    --soft;
    e = make(Op::kConditional, line, std::move(operands));
  }
  return e;
}

ExpressionPtr ExpressionParser::disjunction() {
  ExpressionPtr e = conjunction();
  while (in_.is_word("or")) {
    const int line = in_.next().line;
    ExpressionPtr right = conjunction();
    e = make(Op::kOr, line, std::move(e), std::move(right));
  }
  return e;
}

ExpressionPtr ExpressionParser::conjunction() {
  ExpressionPtr e = negation();
  while (in_.is_word("and")) {
    const int line = in_.next().line;
    ExpressionPtr right = negation();
    e = make(Op::kAnd, line, std::move(e), std::move(right));
  }
  return e;
}

ExpressionPtr ExpressionParser::negation() {
  if (!in_.is_word("not")) return comparison();
  const TokenReader::Nesting nesting(in_);
  const int line = in_.next().line;
  return make_unary(Op::kNot, line, negation());
}

std::optional<Comparison> ExpressionParser::comparison_sign() {
  static constexpr std::array<std::string_view, 6> kSigns = {"==", "!=", "<", "<=", ">", ">="};
  if (in_.now().kind == TokenKind::kOperator) {
    const auto it = std::find(kSigns.begin(), kSigns.end(), in_.now().text);
    if (it == kSigns.end()) return std::nullopt;
    in_.next();
    return static_cast<Comparison>(it - kSigns.begin());
  }
  if (in_.skip_word("in")) return Comparison::kIn;
  if (in_.is_word("not") && in_.ahead().kind == TokenKind::kName && in_.ahead().text == "in") {
    in_.next();
    in_.next();
    return Comparison::kNotIn;
  }
  return std::nullopt;
}

ExpressionPtr ExpressionParser::comparison() {
  const int line = in_.now().line;
  ExpressionPtr first = sum();
  std::optional<Comparison> sign = comparison_sign();
  if (!sign) return first;
  ExpressionPtr e = make_unary(Op::kCompare, line, std::move(first));
  for (; sign; sign = comparison_sign()) {
    e->comparisons.push_back(*sign);
    e->operands.push_back(sum());
    deepen(*e, e->operands.back());
  }
  return e;
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr e = concatenation();
  while (in_.is_op("+") || in_.is_op("-")) {
    const Op op = in_.is_op("+") ? Op::kAdd : Op::kSubtract;
    const int line = in_.next().line;
    ExpressionPtr right = concatenation();
    e = make(op, line, std::move(e), std::move(right));
  }
  return e;
}

ExpressionPtr ExpressionParser::concatenation() {
  const int line = in_.now().line;
  std::vector<ExpressionPtr> parts;
  parts.push_back(product());
  while (in_.skip_op("~")) parts.push_back(product());
  return parts.size() == 1 ? std::move(parts[0]) : make(Op::kConcat, line, std::move(parts));
}

ExpressionPtr ExpressionParser::product() {
  ExpressionPtr e = power();
  while (in_.is_op("*") || in_.is_op("/") || in_.is_op("//") || in_.is_op("%")) {
    const Op op = in_.is_op("*")    ? Op::kMultiply
                  : in_.is_op("/")  ? Op::kDivide
                  : in_.is_op("//") ? Op::kFloorDivide
                                    : Op::kModulo;
    const int line = in_.next().line;
    ExpressionPtr right = power();
    e = make(op, line, std::move(e), std::move(right));
  }
  return e;
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr e = unary(true);
  while (in_.is_op("**")) {
    const int line = in_.next().line;
    ExpressionPtr right = unary(true);
    e = make(Op::kPower, line, std::move(e), std::move(right));
  }
  return e;
}

ExpressionPtr ExpressionParser::unary(bool with_filter) {
  const int line = in_.now().line;
  ExpressionPtr e;
  if (in_.is_op("-") || in_.is_op("+")) {
    const TokenReader::Nesting nesting(in_);
    const Op op = in_.is_op("-") ? Op::kNegative : Op::kPositive;
    in_.next();
    e = make_unary(op, line, unary(false));
  } else {
    e = primary();
  }
  e = postfix(std::move(e));
  while (with_filter) {
    if (in_.is_op("|")) {
      e = filter(std::move(e));
    } else if (in_.is_word("is")) {
      e = test(std::move(e));
    } else if (in_.is_op("(")) {
      e = call(std::move(e));
    } else {
      break;
    }
  }
  return e;
}

ExpressionPtr ExpressionParser::constant(int line, Value value) const {
  ExpressionPtr e = make(Op::kConstant, line);
  e->constant = std::move(value);
  return e;
}

Value ExpressionParser::text_constant(std::string text) { return TextRef(new Text{std::move(text), false, {}}); }

ExpressionPtr ExpressionParser::primary() {
  const Token& token = in_.now();
  const int line = token.line;
  switch (token.kind) {
    case TokenKind::kName:
      return name_or_constant();
    case TokenKind::kNumber:
      in_.next();
      return constant(line, token.number);
    case TokenKind::kText: {
      std::string text;
      while (in_.now().kind == TokenKind::kText) text += in_.next().text;
      return constant(line, text_constant(std::move(text)));
    }
    default:
      break;
  }
  if (in_.skip_op("(")) {
    ExpressionPtr e = tuple(true, {}, true);
    in_.expect_op(")");
    return e;
  }
  if (in_.skip_op("[")) return make(Op::kList, line, items("]", false));
  if (in_.skip_op("{")) return make(Op::kDict, line, items("}", true));
  in_.fail("expected an expression, found " + in_.found());
}

ExpressionPtr ExpressionParser::name_or_constant() {
  const int line = in_.now().line;
  const std::string name = in_.next().text;
  if (name == "true" || name == "True") return constant(line, true);
  if (name == "false" || name == "False") return constant(line, false);
  if (name == "none" || name == "None") return constant(line, None{});
  if (macro != nullptr) {
    macro->takes_caller |= name == "caller";
    macro->takes_named |= name == "kwargs";
    macro->takes_positional |= name == "varargs";
  }
  ExpressionPtr e = make(Op::kName, line);
  e->symbol = symbol(name);
  return e;
}

std::vector<ExpressionPtr> ExpressionParser::items(std::string_view close, bool pairs) {
  std::vector<ExpressionPtr> out;
  while (!in_.is_op(close)) {
    if (!out.empty()) in_.expect_op(",");
    if (in_.is_op(close)) break;
    out.push_back(expression());
    if (pairs) {
      in_.expect_op(":");
      out.push_back(expression());
    }
  }
  in_.next();
  return out;
}

ExpressionPtr ExpressionParser::tuple(bool with_condition, Words stop, bool in_parentheses) {
  const int line = in_.now().line;
  std::vector<ExpressionPtr> parts;
  bool is_tuple = false;
  while (true) {
    if (in_.now().kind == TokenKind::kPrintEnd || in_.now().kind == TokenKind::kBlockEnd || in_.is_op(")") ||
        in_.is_word_of(stop))
      break;
    parts.push_back(expression(with_condition));
    if (!in_.is_op(",")) break;
    is_tuple = true;
    in_.next();
  }
  if (!is_tuple && parts.size() == 1) return std::move(parts[0]);
  if (!is_tuple && !in_parentheses) in_.fail("expected an expression, found " + in_.found());
  return make(Op::kTuple, line, std::move(parts));
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr e) {
  while (true) {
    const int line = in_.now().line;
    if (in_.is_op("(")) {
      e = call(std::move(e));
    } else if (in_.skip_op("[")) {
      e = subscript(line, std::move(e));
    } else if (in_.skip_op(".")) {
      if (in_.now().kind == TokenKind::kNumber && in_.now().number.is<Int>()) {
        e = make(Op::kSubscript, line, std::move(e), constant(line, in_.next().number));
        continue;
      }
      e = make_unary(Op::kAttribute, line, std::move(e));
      e->name = in_.expect_name();
      e->constant = text_constant(e->name);
    } else {
      return e;
    }
  }
}

ExpressionPtr ExpressionParser::subscript(int line, ExpressionPtr e) {
  ExpressionPtr first;
  if (!in_.is_op(":")) first = expression();
  if (!in_.is_op(":")) {
    if (in_.is_op(",")) {
      std::vector<ExpressionPtr> parts;
      parts.push_back(std::move(first));
      while (in_.skip_op(",") && !in_.is_op("]")) parts.push_back(expression());
      first = make(Op::kTuple, line, std::move(parts));
    }
    in_.expect_op("]");
    return make(Op::kSubscript, line, std::move(e), std::move(first));
  }
  std::vector<ExpressionPtr> operands;
  operands.push_back(std::move(e));
  operands.push_back(std::move(first));
  while (operands.size() < 4 && in_.skip_op(":"))
    operands.push_back(in_.is_op(":") || in_.is_op("]") ? nullptr : expression());
  operands.resize(4);
  in_.expect_op("]");
  return make(Op::kSlice, line, std::move(operands));
}

// Reads (a, b, name=c, *d, **e) into `e`, after its operand 0.
void ExpressionParser::arguments(Expression& e) {
  in_.expect_op("(");
  const int line = in_.now().line;
  bool first = true;
  while (!in_.is_op(")")) {
    if (!first) in_.expect_op(",");
    if (in_.is_op(")")) break;
    first = false;
    const bool is_named =
        in_.now().kind == TokenKind::kName && in_.ahead().kind == TokenKind::kOperator && in_.ahead().text == "=";
    const bool plain = !is_named && !in_.is_op("*") && !in_.is_op("**");
    if (e.star_star != nullptr || (e.star != nullptr && (plain || in_.is_op("*"))) || (plain && !e.named.empty()))
      in_.fail_at(line, "these arguments must not be in this order");
    if (in_.skip_op("*")) {
      e.star = expression();
      deepen(e, e.star);
    } else if (in_.skip_op("**")) {
      e.star_star = expression();
      deepen(e, e.star_star);
    } else if (is_named) {
      std::string name = in_.expect_name();
      in_.next();
      for (const auto& [other, value] : e.named)
        if (other == name) in_.fail_at(line, "the argument " + name + " is given twice");
      e.named.emplace_back(std::move(name), expression());
      deepen(e, e.named.back().second);
    } else {
      e.operands.push_back(expression());
      deepen(e, e.operands.back());
    }
  }
  in_.next();
}

ExpressionPtr ExpressionParser::call(ExpressionPtr callee) {
  ExpressionPtr e = make_unary(Op::kCall, in_.now().line, std::move(callee));
  arguments(*e);
  return e;
}

std::string ExpressionParser::dotted_name() {
  std::string name = in_.expect_name();
  while (in_.skip_op(".")) name += "." + in_.expect_name();
  return name;
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr input) {
  in_.expect_op("|");
  return filter_call(std::move(input));
}

ExpressionPtr ExpressionParser::filter_call(ExpressionPtr input) {
  ExpressionPtr e = make_unary(Op::kFilter, in_.now().line, std::move(input));
  e->name = dotted_name();
  e->filter = find_filter(e->name);
  if (e->filter == nullptr && soft == 0) in_.fail_at(e->line, "there is no filter named '" + e->name + "'");
  if (in_.is_op("(")) arguments(*e);
  return e;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr input) {
  in_.next();
  const bool negated = in_.skip_word("not");
  ExpressionPtr e = make_unary(Op::kTest, in_.now().line, std::move(input));
  e->name = dotted_name();
  e->test = find_test(e->name);
  if (e->test == nullptr && soft == 0) in_.fail_at(e->line, "there is no test named '" + e->name + "'");
  const Token& t = in_.now();
  const bool word = t.kind == TokenKind::kName && t.text != "else" && t.text != "or" && t.text != "and";
  if (in_.is_op("(")) {
    arguments(*e);
  } else if (word || t.kind == TokenKind::kText || t.kind == TokenKind::kNumber || in_.is_op("[") || in_.is_op("{")) {
    if (in_.is_word("is")) in_.fail("tests cannot be chained with is");
    e->operands.push_back(postfix(primary()));
    deepen(*e, e->operands.back());
  }
  const int line = e->line;
  return negated ? make_unary(Op::kNot, line, std::move(e)) : std::move(e);
}

}  // namespace quire::jinja
