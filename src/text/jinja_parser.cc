#include <algorithm>
#include <array>

#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"
#include "text/jinja_unicode.h"

namespace quire::jinja {
namespace {

using Words = std::initializer_list<std::string_view>;

class Parser {
 public:
  Parser(Program& program, std::vector<Token> tokens) : program_(program), tokens_(std::move(tokens)) {
    program_.loop = symbol("loop");
    program_.caller = symbol("caller");
    program_.kwargs = symbol("kwargs");
    program_.varargs = symbol("varargs");
  }

  Body run() { return body({}); }

 private:
  // --- tokens
  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool is_op(std::string_view text) const { return now().kind == TokenKind::kOperator && now().text == text; }
  bool is_word(std::string_view text) const { return now().kind == TokenKind::kName && now().text == text; }
  bool skip_op(std::string_view text) { return is_op(text) && (++at_, true); }
  bool skip_word(std::string_view text) { return is_word(text) && (++at_, true); }

  [[noreturn]] void fail_at(int line, const std::string& what) const {
    throw invalid("{}:{}: {}", program_.name, line, what);
  }
  [[noreturn]] void fail(const std::string& what) const { fail_at(now().line, what); }
  std::string found() const {
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
  void expect_op(std::string_view text) {
    if (!skip_op(text)) fail(fmt::format("expected '{}', found {}", text, found()));
  }
  std::string expect_name() {
    if (now().kind != TokenKind::kName) fail("expected a name, found " + found());
    return tokens_[at_++].text;
  }
  void expect(TokenKind kind, std::string_view text) {
    if (now().kind != kind) fail(fmt::format("expected '{}', found {}", text, found()));
    ++at_;
  }

  Symbol symbol(const std::string& name) {
    const auto [it, added] = symbol_ids_.emplace(name, static_cast<Symbol>(program_.symbols.size()));
    if (added) program_.symbols.push_back(name);
    return it->second;
  }

  struct Nesting {
    explicit Nesting(Parser& parser) : p(parser) {
      if (++p.nesting_ > kMaxNesting) p.fail(fmt::format("nested more than {} deep", kMaxNesting));
    }
    ~Nesting() { --p.nesting_; }
    Parser& p;
  };

  ExpressionPtr make(Op op, int line, std::vector<ExpressionPtr> operands = {}) const {
    auto e = std::make_unique<Expression>();
    e->op = op;
    e->line = line;
    e->operands = std::move(operands);
    for (const ExpressionPtr& o : e->operands) deepen(*e, o);
    return e;
  }
  void deepen(Expression& e, const ExpressionPtr& child) const {
    if (child == nullptr) return;
    e.depth = std::max(e.depth, child->depth + 1);
    if (e.depth > kMaxExpressionDepth)
      fail_at(e.line, fmt::format("the expression is more than {} deep", kMaxExpressionDepth));
  }
  ExpressionPtr make(Op op, int line, ExpressionPtr a, ExpressionPtr b) const {
    std::vector<ExpressionPtr> operands;
    operands.push_back(std::move(a));
    operands.push_back(std::move(b));
    return make(op, line, std::move(operands));
  }
  ExpressionPtr make_unary(Op op, int line, ExpressionPtr a) const {
    std::vector<ExpressionPtr> operands;
    operands.push_back(std::move(a));
    return make(op, line, std::move(operands));
  }

  // --- expressions, loosest first
  ExpressionPtr expression(bool with_condition = true) {
    const Nesting nesting(*this);
    if (!with_condition) return disjunction();
    const int line = now().line;
    ExpressionPtr e = disjunction();
    while (skip_word("if")) {
      ++soft_;
      std::vector<ExpressionPtr> operands;
      operands.push_back(disjunction());
      operands.push_back(std::move(e));
      operands.push_back(skip_word("else") ? expression() : nullptr);
      --soft_;
      e = make(Op::kConditional, line, std::move(operands));
    }
    return e;
  }

  ExpressionPtr disjunction() {
    ExpressionPtr e = conjunction();
    while (is_word("or")) {
      const int line = tokens_[at_++].line;
      ExpressionPtr right = conjunction();
      e = make(Op::kOr, line, std::move(e), std::move(right));
    }
    return e;
  }

  ExpressionPtr conjunction() {
    ExpressionPtr e = negation();
    while (is_word("and")) {
      const int line = tokens_[at_++].line;
      ExpressionPtr right = negation();
      e = make(Op::kAnd, line, std::move(e), std::move(right));
    }
    return e;
  }

  ExpressionPtr negation() {
    if (!is_word("not")) return comparison();
    const Nesting nesting(*this);
    const int line = tokens_[at_++].line;
    return make_unary(Op::kNot, line, negation());
  }

  std::optional<Comparison> comparison_sign() {
    static constexpr std::array<std::string_view, 6> kSigns = {"==", "!=", "<", "<=", ">", ">="};
    if (now().kind == TokenKind::kOperator) {
      const auto it = std::find(kSigns.begin(), kSigns.end(), now().text);
      if (it == kSigns.end()) return std::nullopt;
      ++at_;
      return static_cast<Comparison>(it - kSigns.begin());
    }
    if (skip_word("in")) return Comparison::kIn;
    if (is_word("not") && ahead().kind == TokenKind::kName && ahead().text == "in") {
      at_ += 2;
      return Comparison::kNotIn;
    }
    return std::nullopt;
  }

  ExpressionPtr comparison() {
    const int line = now().line;
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

  ExpressionPtr sum() {
    ExpressionPtr e = concatenation();
    while (is_op("+") || is_op("-")) {
      const Op op = is_op("+") ? Op::kAdd : Op::kSubtract;
      const int line = tokens_[at_++].line;
      ExpressionPtr right = concatenation();
      e = make(op, line, std::move(e), std::move(right));
    }
    return e;
  }

  ExpressionPtr concatenation() {
    const int line = now().line;
    std::vector<ExpressionPtr> parts;
    parts.push_back(product());
    while (skip_op("~")) parts.push_back(product());
    return parts.size() == 1 ? std::move(parts[0]) : make(Op::kConcat, line, std::move(parts));
  }

  ExpressionPtr product() {
    ExpressionPtr e = power();
    while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
      const Op op = is_op("*")    ? Op::kMultiply
                    : is_op("/")  ? Op::kDivide
                    : is_op("//") ? Op::kFloorDivide
                                  : Op::kModulo;
      const int line = tokens_[at_++].line;
      ExpressionPtr right = power();
      e = make(op, line, std::move(e), std::move(right));
    }
    return e;
  }

  ExpressionPtr power() {
    ExpressionPtr e = unary(true);
    while (is_op("**")) {
      const int line = tokens_[at_++].line;
      ExpressionPtr right = unary(true);
      e = make(Op::kPower, line, std::move(e), std::move(right));
    }
    return e;
  }

  ExpressionPtr unary(bool with_filter) {
    const int line = now().line;
    ExpressionPtr e;
    if (is_op("-") || is_op("+")) {
      const Nesting nesting(*this);
      const Op op = is_op("-") ? Op::kNegative : Op::kPositive;
      ++at_;
      e = make_unary(op, line, unary(false));
    } else {
      e = primary();
    }
    e = postfix(std::move(e));
    while (with_filter) {
      if (is_op("|")) {
        e = filter(std::move(e));
      } else if (is_word("is")) {
        e = test(std::move(e));
      } else if (is_op("(")) {
        e = call(std::move(e));
      } else {
        break;
      }
    }
    return e;
  }

  ExpressionPtr constant(int line, Value value) const {
    ExpressionPtr e = make(Op::kConstant, line);
    e->constant = std::move(value);
    return e;
  }
  static Value text_constant(std::string text) { return TextRef(new Text{std::move(text), false, {}}); }

  ExpressionPtr primary() {
    const Token& token = now();
    const int line = token.line;
    switch (token.kind) {
      case TokenKind::kName:
        return name_or_constant();
      case TokenKind::kNumber:
        ++at_;
        return constant(line, token.number);
      case TokenKind::kText: {
        std::string text;
        while (now().kind == TokenKind::kText) text += tokens_[at_++].text;
        return constant(line, text_constant(std::move(text)));
      }
      default:
        break;
    }
    if (skip_op("(")) {
      ExpressionPtr e = tuple(true, {}, true);
      expect_op(")");
      return e;
    }
    if (skip_op("[")) return make(Op::kList, line, items("]", false));
    if (skip_op("{")) return make(Op::kDict, line, items("}", true));
    fail("expected an expression, found " + found());
  }

  ExpressionPtr name_or_constant() {
    const int line = now().line;
    const std::string name = tokens_[at_++].text;
    if (name == "true" || name == "True") return constant(line, true);
    if (name == "false" || name == "False") return constant(line, false);
    if (name == "none" || name == "None") return constant(line, None{});
    if (macro_ != nullptr) {
      macro_->takes_caller |= name == "caller";
      macro_->takes_named |= name == "kwargs";
      macro_->takes_positional |= name == "varargs";
    }
    ExpressionPtr e = make(Op::kName, line);
    e->symbol = symbol(name);
    return e;
  }

  std::vector<ExpressionPtr> items(std::string_view close, bool pairs) {
    std::vector<ExpressionPtr> out;
    while (!is_op(close)) {
      if (!out.empty()) expect_op(",");
      if (is_op(close)) break;
      out.push_back(expression());
      if (pairs) {
        expect_op(":");
        out.push_back(expression());
      }
    }
    ++at_;
    return out;
  }

  // Expressions with commas between them are a tuple. `stop` names the words that may end it.
  ExpressionPtr tuple(bool with_condition = true, Words stop = {}, bool in_parentheses = false) {
    const int line = now().line;
    std::vector<ExpressionPtr> parts;
    bool is_tuple = false;
    while (true) {
      const bool stops = std::any_of(stop.begin(), stop.end(), [&](std::string_view w) { return is_word(w); });
      if (now().kind == TokenKind::kPrintEnd || now().kind == TokenKind::kBlockEnd || is_op(")") || stops) break;
      parts.push_back(expression(with_condition));
      if (!is_op(",")) break;
      is_tuple = true;
      ++at_;
    }
    if (!is_tuple && parts.size() == 1) return std::move(parts[0]);
    if (!is_tuple && !in_parentheses) fail("expected an expression, found " + found());
    return make(Op::kTuple, line, std::move(parts));
  }

  ExpressionPtr postfix(ExpressionPtr e) {
    while (true) {
      const int line = now().line;
      if (is_op("(")) {
        e = call(std::move(e));
      } else if (skip_op("[")) {
        e = subscript(line, std::move(e));
      } else if (skip_op(".")) {
        if (now().kind == TokenKind::kNumber && now().number.is<Int>()) {
          e = make(Op::kSubscript, line, std::move(e), constant(line, tokens_[at_++].number));
          continue;
        }
        e = make_unary(Op::kAttribute, line, std::move(e));
        e->name = expect_name();
        e->constant = text_constant(e->name);
      } else {
        return e;
      }
    }
  }

  ExpressionPtr subscript(int line, ExpressionPtr e) {
    ExpressionPtr first;
    if (!is_op(":")) first = expression();
    if (!is_op(":")) {
      if (is_op(",")) {
        std::vector<ExpressionPtr> parts;
        parts.push_back(std::move(first));
        while (skip_op(",") && !is_op("]")) parts.push_back(expression());
        first = make(Op::kTuple, line, std::move(parts));
      }
      expect_op("]");
      return make(Op::kSubscript, line, std::move(e), std::move(first));
    }
    std::vector<ExpressionPtr> operands;
    operands.push_back(std::move(e));
    operands.push_back(std::move(first));
    while (operands.size() < 4 && skip_op(":")) operands.push_back(is_op(":") || is_op("]") ? nullptr : expression());
    operands.resize(4);
    expect_op("]");
    return make(Op::kSlice, line, std::move(operands));
  }

  // (a, b, name=c, *d, **e) into `e`, behind its operand 0.
  void arguments(Expression& e) {
    expect_op("(");
    const int line = now().line;
    bool first = true;
    while (!is_op(")")) {
      if (!first) expect_op(",");
      if (is_op(")")) break;
      first = false;
      const bool is_named =
          now().kind == TokenKind::kName && ahead().kind == TokenKind::kOperator && ahead().text == "=";
      const bool plain = !is_named && !is_op("*") && !is_op("**");
      if (e.star_star != nullptr || (e.star != nullptr && (plain || is_op("*"))) || (plain && !e.named.empty()))
        fail_at(line, "these arguments may not stand in this order");
      if (skip_op("*")) {
        e.star = expression();
        deepen(e, e.star);
      } else if (skip_op("**")) {
        e.star_star = expression();
        deepen(e, e.star_star);
      } else if (is_named) {
        std::string name = expect_name();
        ++at_;
        for (const auto& [other, value] : e.named)
          if (other == name) fail_at(line, "the argument " + name + " is given twice");
        e.named.emplace_back(std::move(name), expression());
        deepen(e, e.named.back().second);
      } else {
        e.operands.push_back(expression());
        deepen(e, e.operands.back());
      }
    }
    ++at_;
  }

  ExpressionPtr call(ExpressionPtr callee) {
    ExpressionPtr e = make_unary(Op::kCall, now().line, std::move(callee));
    arguments(*e);
    return e;
  }

  std::string dotted_name() {
    std::string name = expect_name();
    while (skip_op(".")) name += "." + expect_name();
    return name;
  }

  ExpressionPtr filter(ExpressionPtr input) {
    expect_op("|");
    return filter_call(std::move(input));
  }

  ExpressionPtr filter_call(ExpressionPtr input) {
    ExpressionPtr e = make_unary(Op::kFilter, now().line, std::move(input));
    e->name = dotted_name();
    e->filter = find_filter(e->name);
    if (e->filter == nullptr && soft_ == 0) fail_at(e->line, "there is no filter named '" + e->name + "'");
    if (is_op("(")) arguments(*e);
    return e;
  }

  ExpressionPtr test(ExpressionPtr input) {
    ++at_;
    const bool negated = skip_word("not");
    ExpressionPtr e = make_unary(Op::kTest, now().line, std::move(input));
    e->name = dotted_name();
    e->test = find_test(e->name);
    if (e->test == nullptr && soft_ == 0) fail_at(e->line, "there is no test named '" + e->name + "'");
    const Token& t = now();
    const bool word = t.kind == TokenKind::kName && t.text != "else" && t.text != "or" && t.text != "and";
    if (is_op("(")) {
      arguments(*e);
    } else if (word || t.kind == TokenKind::kText || t.kind == TokenKind::kNumber || is_op("[") || is_op("{")) {
      if (is_word("is")) fail("tests cannot be chained with is");
      e->operands.push_back(postfix(primary()));
      deepen(*e, e->operands.back());
    }
    const int line = e->line;
    return negated ? make_unary(Op::kNot, line, std::move(e)) : std::move(e);
  }

  // --- statements
  Body body(Words ends) {
    const Nesting nesting(*this);
    Body out;
    const int opened = now().line;
    while (now().kind != TokenKind::kEnd) {
      Token& token = tokens_[at_++];
      if (token.kind == TokenKind::kData) {
        out.push_back(node(Statement::kData, token.line));
        out.back().data = std::move(token.text);
      } else if (token.kind == TokenKind::kPrintBegin) {
        out.push_back(node(Statement::kPrint, token.line));
        out.back().expressions.push_back(tuple());
        expect(TokenKind::kPrintEnd, "}}");
      } else {
        if (std::any_of(ends.begin(), ends.end(), [&](std::string_view w) { return is_word(w); })) return out;
        out.push_back(statement());
        expect(TokenKind::kBlockEnd, "%}");
      }
    }
    if (ends.size() != 0)
      fail(fmt::format("'{}' is missing for the block opened in line {}", *(ends.end() - 1), opened));
    return out;
  }

  static Node node(Statement kind, int line) {
    Node n{};
    n.kind = kind;
    n.line = line;
    return n;
  }

  // The body of a block whose tag ends here, up to its end tag, which is read too.
  Body block(std::string_view end) {
    skip_op(":");
    expect(TokenKind::kBlockEnd, "%}");
    Body out = body({end});
    ++at_;
    return out;
  }

  Node statement() {
    const int line = now().line;
    const std::string tag = expect_name();
    if (tag == "if") return if_statement(line);
    if (tag == "for") return for_statement(line);
    if (tag == "set") return set_statement(line);
    if (tag == "macro") return macro_statement(line);
    if (tag == "call") return call_statement(line);
    if (tag == "with") return with_statement(line);
    if (tag == "generation") {
      Node n = node(Statement::kScope, line);
      const int loops = std::exchange(loops_, 0);
      n.bodies.push_back(block("endgeneration"));
      loops_ = loops;
      return n;
    }
    if (tag == "filter") {
      Node n = node(Statement::kFilterBlock, line);
      n.filter = filter_call(nullptr);
      while (is_op("|")) n.filter = filter(std::move(n.filter));
      n.bodies.push_back(block("endfilter"));
      return n;
    }
    if (tag == "print") {
      Node n = node(Statement::kPrint, line);
      while (now().kind != TokenKind::kBlockEnd) {
        if (!n.expressions.empty()) expect_op(",");
        n.expressions.push_back(expression());
      }
      return n;
    }
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) fail_at(line, "'" + tag + "' outside a loop");
      return node(tag == "break" ? Statement::kBreak : Statement::kContinue, line);
    }
    for (const std::string_view word : {"include", "import", "from", "extends", "block", "autoescape"})
      if (tag == word) throw unsupported("{}:{}: '{}' is not supported in a chat template", program_.name, line, tag);
    fail_at(line, "unknown tag '" + tag + "'");
  }

  Node if_statement(int line) {
    Node n = node(Statement::kIf, line);
    ++soft_;
    while (true) {
      n.expressions.push_back(tuple(false));
      skip_op(":");
      expect(TokenKind::kBlockEnd, "%}");
      n.bodies.push_back(body({"elif", "else", "endif"}));
      if (skip_word("elif")) continue;
      if (skip_word("else")) {
        n.bodies.push_back(block("endif"));
      } else {
        ++at_;
      }
      --soft_;
      return n;
    }
  }

  Node for_statement(int line) {
    Node n = node(Statement::kFor, line);
    n.target = target({"in"}, false);
    if (!skip_word("in")) fail("expected 'in', found " + found());
    n.expressions.push_back(tuple(false, {"recursive"}));
    n.expressions.push_back(skip_word("if") ? expression() : nullptr);
    n.recursive = skip_word("recursive");
    skip_op(":");
    expect(TokenKind::kBlockEnd, "%}");
    ++loops_;
    n.bodies.push_back(body({"else", "endfor"}));
    --loops_;
    if (skip_word("else")) {
      n.bodies.push_back(block("endfor"));
    } else {
      ++at_;
    }
    return n;
  }

  // name, name.attribute (where `with_namespace`), or (a, b, …).
  Target target(Words stop, bool with_namespace) {
    const Nesting nesting(*this);
    std::vector<Target> parts;
    bool is_tuple = false;
    while (true) {
      const bool stops = std::any_of(stop.begin(), stop.end(), [&](std::string_view w) { return is_word(w); });
      if (now().kind == TokenKind::kBlockEnd || is_op(")") || is_op("=") || stops) break;
      if (skip_op("(")) {
        parts.push_back(target({}, with_namespace));
        expect_op(")");
      } else {
        parts.push_back(name_target());
        if (with_namespace && skip_op(".")) parts.back().attribute = expect_name();
      }
      if (!is_op(",")) break;
      is_tuple = true;
      ++at_;
    }
    if (parts.empty()) fail("expected a name to assign to, found " + found());
    if (!is_tuple) return std::move(parts[0]);
    Target t;
    t.parts = std::move(parts);
    return t;
  }

  Target name_target() {
    const int line = now().line;
    const std::string name = expect_name();
    for (const std::string_view fixed : {"true", "false", "none", "True", "False", "None"})
      if (name == fixed) fail_at(line, "cannot assign to '" + name + "'");
    Target t;
    t.symbol = symbol(name);
    return t;
  }

  Node set_statement(int line) {
    Node n = node(Statement::kSet, line);
    n.target = target({}, true);
    if (skip_op("=")) {
      n.expressions.push_back(tuple());
      return n;
    }
    n.kind = Statement::kSetBlock;
    while (is_op("|")) n.filter = filter(std::move(n.filter));
    n.bodies.push_back(block("endset"));
    return n;
  }

  Node with_statement(int line) {
    Node n = node(Statement::kWith, line);
    while (now().kind != TokenKind::kBlockEnd) {
      if (!n.targets.empty()) expect_op(",");
      n.targets.push_back(name_target());
      expect_op("=");
      n.expressions.push_back(expression());
    }
    n.bodies.push_back(block("endwith"));
    return n;
  }

  void signature(Node& n) {
    expect_op("(");
    while (!is_op(")")) {
      if (!n.parameters.empty()) expect_op(",");
      if (is_op(")")) break;
      const Symbol name = name_target().symbol;
      ExpressionPtr fallback = skip_op("=") ? expression() : nullptr;
      if (fallback == nullptr && !n.parameters.empty() && n.parameters.back().fallback != nullptr)
        fail("a parameter without a default follows one with a default");
      for (const Parameter& other : n.parameters)
        if (other.symbol == name) fail("two parameters have the same name");
      n.parameters.push_back({name, std::move(fallback)});
    }
    ++at_;
  }

  void macro_body(Node& n, std::string_view end) {
    Node* const outer = std::exchange(macro_, &n);
    const int loops = std::exchange(loops_, 0);
    n.bodies.push_back(block(end));
    loops_ = loops;
    macro_ = outer;
  }

  Node macro_statement(int line) {
    Node n = node(Statement::kMacro, line);
    n.name = name_target().symbol;
    n.data = program_.symbols[static_cast<size_t>(n.name)];
    signature(n);
    macro_body(n, "endmacro");
    return n;
  }

  Node call_statement(int line) {
    Node n = node(Statement::kCallBlock, line);
    n.data = "caller";
    if (is_op("(")) signature(n);
    n.expressions.push_back(expression());
    if (n.expressions[0]->op != Op::kCall) fail_at(line, "'call' needs a call behind it");
    macro_body(n, "endcall");
    return n;
  }

  Program& program_;
  std::vector<Token> tokens_;
  std::unordered_map<std::string, Symbol> symbol_ids_;
  size_t at_ = 0;
  int nesting_ = 0;
  int soft_ = 0;           // inside an if: filters that do not exist fail when they run, as in jinja2
  int loops_ = 0;          // that a break could leave
  Node* macro_ = nullptr;  // whose body this is
};

// Line ends become \n; the last one goes.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

}  // namespace

std::shared_ptr<const Program> parse_program(std::string source, std::string name) {
  if (source.size() > kMaxSource)
    throw invalid("{}: a chat template of {} bytes; at most {} are allowed", name, source.size(), kMaxSource);
  if (!is_valid_utf8(source)) throw invalid("{}: the chat template is not UTF-8", name);
  auto program = std::make_shared<Program>();
  program->name = std::move(name);
  Parser parser(*program, tokenize(normalized(source), program->name));
  program->body = parser.run();
  program->source = std::move(source);
  return program;
}

}  // namespace quire::jinja
