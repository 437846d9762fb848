// Parses statements into a program.
#include "jinja/syntax/ast.h"
#include "jinja/syntax/expressions.h"
#include "jinja/syntax/token_reader.h"
#include "jinja/value/unicode.h"

namespace quire::jinja {
namespace {

class Parser {
 public:
  Parser(Program& program, std::vector<Token> tokens)
      : program_(program), in_(std::move(tokens), program.name), expressions_(in_, program) {
    program_.loop = expressions_.symbol("loop");
    program_.caller = expressions_.symbol("caller");
    program_.kwargs = expressions_.symbol("kwargs");
    program_.varargs = expressions_.symbol("varargs");
  }

  Body run() { return body({}); }

 private:
  Body body(Words ends) {
    const TokenReader::Nesting nesting(in_);
    Body out;
    const int opened = in_.now().line;
    while (in_.now().kind != TokenKind::kEnd) {
      Token& token = in_.next();
      if (token.kind == TokenKind::kData) {
        out.push_back(node(Statement::kData, token.line));
        out.back().data = std::move(token.text);
      } else if (token.kind == TokenKind::kPrintBegin) {
        out.push_back(node(Statement::kPrint, token.line));
        out.back().expressions.push_back(expressions_.tuple());
        in_.expect(TokenKind::kPrintEnd, "}}");
      } else {
        if (in_.is_word_of(ends)) return out;
        out.push_back(statement());
        in_.expect(TokenKind::kBlockEnd, "%}");
      }
    }
    if (ends.size() != 0)
      in_.fail(fmt::format("'{}' is missing for the block opened in line {}", *(ends.end() - 1), opened));
    return out;
  }

  static Node node(Statement kind, int line) {
    Node n{};
    n.kind = kind;
    n.line = line;
    return n;
  }

  // Reads the body of a block whose tag ends here, up to and including its end tag.
  Body block(std::string_view end) {
    in_.skip_op(":");
    in_.expect(TokenKind::kBlockEnd, "%}");
    Body out = body({end});
    in_.next();
    return out;
  }

  Node statement() {
    const int line = in_.now().line;
    const std::string tag = in_.expect_name();
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
      n.filter = expressions_.filter_call(nullptr);
      while (in_.is_op("|")) n.filter = expressions_.filter(std::move(n.filter));
      n.bodies.push_back(block("endfilter"));
      return n;
    }
    if (tag == "print") {
      Node n = node(Statement::kPrint, line);
      while (in_.now().kind != TokenKind::kBlockEnd) {
        if (!n.expressions.empty()) in_.expect_op(",");
        n.expressions.push_back(expressions_.expression());
      }
      return n;
    }
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) in_.fail_at(line, "'" + tag + "' outside a loop");
      return node(tag == "break" ? Statement::kBreak : Statement::kContinue, line);
    }
    for (const std::string_view word : {"include", "import", "from", "extends", "block", "autoescape"})
      if (tag == word) throw unsupported("{}:{}: '{}' is not supported in a chat template", program_.name, line, tag);
    in_.fail_at(line, "unknown tag '" + tag + "'");
  }

  Node if_statement(int line) {
    Node n = node(Statement::kIf, line);
    ++expressions_.soft;
    while (true) {
      n.expressions.push_back(expressions_.tuple(false));
      in_.skip_op(":");
      in_.expect(TokenKind::kBlockEnd, "%}");
      n.bodies.push_back(body({"elif", "else", "endif"}));
      if (in_.skip_word("elif")) continue;
      if (in_.skip_word("else")) {
        n.bodies.push_back(block("endif"));
      } else {
        in_.next();
      }
      --expressions_.soft;
      return n;
    }
  }

  Node for_statement(int line) {
    Node n = node(Statement::kFor, line);
    n.target = target({"in"}, false);
    if (!in_.skip_word("in")) in_.fail("expected 'in', found " + in_.found());
    n.expressions.push_back(expressions_.tuple(false, {"recursive"}));
    n.expressions.push_back(in_.skip_word("if") ? expressions_.expression() : nullptr);
    n.recursive = in_.skip_word("recursive");
    in_.skip_op(":");
    in_.expect(TokenKind::kBlockEnd, "%}");
    ++loops_;
    n.bodies.push_back(body({"else", "endfor"}));
    --loops_;
    if (in_.skip_word("else")) {
      n.bodies.push_back(block("endfor"));
    } else {
      in_.next();
    }
    return n;
  }

  // name, name.attribute (if `with_namespace`), or (a, b, …).
  Target target(Words stop, bool with_namespace) {
    const TokenReader::Nesting nesting(in_);
    std::vector<Target> parts;
    bool is_tuple = false;
    while (true) {
      if (in_.now().kind == TokenKind::kBlockEnd || in_.is_op(")") || in_.is_op("=") || in_.is_word_of(stop)) break;
      if (in_.skip_op("(")) {
        parts.push_back(target({}, with_namespace));
        in_.expect_op(")");
      } else {
        parts.push_back(name_target());
        if (with_namespace && in_.skip_op(".")) parts.back().attribute = in_.expect_name();
      }
      if (!in_.is_op(",")) break;
      is_tuple = true;
      in_.next();
    }
    if (parts.empty()) in_.fail("expected a name to assign to, found " + in_.found());
    if (!is_tuple) return std::move(parts[0]);
    Target t;
    t.parts = std::move(parts);
    return t;
  }

  Target name_target() {
    const int line = in_.now().line;
    const std::string name = in_.expect_name();
    for (const std::string_view fixed : {"true", "false", "none", "True", "False", "None"})
      if (name == fixed) in_.fail_at(line, "cannot assign to '" + name + "'");
    Target t;
    t.symbol = expressions_.symbol(name);
    return t;
  }

  Node set_statement(int line) {
    Node n = node(Statement::kSet, line);
    n.target = target({}, true);
    if (in_.skip_op("=")) {
      n.expressions.push_back(expressions_.tuple());
      return n;
    }
    n.kind = Statement::kSetBlock;
    while (in_.is_op("|")) n.filter = expressions_.filter(std::move(n.filter));
    n.bodies.push_back(block("endset"));
    return n;
  }

  Node with_statement(int line) {
    Node n = node(Statement::kWith, line);
    while (in_.now().kind != TokenKind::kBlockEnd) {
      if (!n.targets.empty()) in_.expect_op(",");
      n.targets.push_back(name_target());
      in_.expect_op("=");
      n.expressions.push_back(expressions_.expression());
    }
    n.bodies.push_back(block("endwith"));
    return n;
  }

  void signature(Node& n) {
    in_.expect_op("(");
    while (!in_.is_op(")")) {
      if (!n.parameters.empty()) in_.expect_op(",");
      if (in_.is_op(")")) break;
      const Symbol name = name_target().symbol;
      ExpressionPtr fallback = in_.skip_op("=") ? expressions_.expression() : nullptr;
      if (fallback == nullptr && !n.parameters.empty() && n.parameters.back().fallback != nullptr)
        in_.fail("a parameter without a default follows one with a default");
      for (const Parameter& other : n.parameters)
        if (other.symbol == name) in_.fail("two parameters have the same name");
      n.parameters.push_back({name, std::move(fallback)});
    }
    in_.next();
  }

  void macro_body(Node& n, std::string_view end) {
    Node* const outer = std::exchange(expressions_.macro, &n);
    const int loops = std::exchange(loops_, 0);
    n.bodies.push_back(block(end));
    loops_ = loops;
    expressions_.macro = outer;
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
    if (in_.is_op("(")) signature(n);
    n.expressions.push_back(expressions_.expression());
    if (n.expressions[0]->op != Op::kCall) in_.fail_at(line, "'call' must be followed by a call");
    macro_body(n, "endcall");
    return n;
  }

  Program& program_;
  TokenReader in_;
  ExpressionParser expressions_;
  int loops_ = 0;  // the loops that a break could leave
};

// Line ends become \n; the last one is dropped.
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
    throw invalid("{}: the template has {} bytes, at most {} are allowed", name, source.size(), kMaxSource);
  if (!is_utf8(source)) throw invalid("{}: the template is not UTF-8", name);
  auto program = std::make_shared<Program>();
  program->name = std::move(name);
  Parser parser(*program, tokenize(normalized(source), program->name));
  program->body = parser.run();
  program->source = std::move(source);
  return program;
}

}  // namespace quire::jinja
