// The syntax tree of a template: built by the parser, immutable, shared by evaluators.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "jinja/value/value.h"

namespace quire::jinja {

using Filter = Value (*)(Evaluator&, const Value& input, const Args&);
using Test = bool (*)(Evaluator&, const Value& input, const Args&);
using Symbol = int;  // a variable's name: its index in Program::symbols

enum class Op : uint8_t {
  kConstant,
  kName,
  kAttribute,
  kSubscript,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kList,
  kTuple,
  kDict,
  kNot,
  kAnd,
  kOr,
  kNegative,
  kPositive,
  kConditional,
  kConcat,
  kCompare,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
};
enum class Comparison : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  Op op;
  int line;
  int depth = 1;
  Symbol symbol = -1;       // kName
  Value constant;           // kConstant; kAttribute: the name
  std::string name;         // kAttribute, kFilter, kTest
  Filter filter = nullptr;  // null: unknown filter, an error when it runs
  Test test = nullptr;
  std::vector<ExpressionPtr> operands;  // null: omitted (part of a slice, else of an if)
  std::vector<Comparison> comparisons;  // kCompare: between operands[i] and operands[i + 1]
  // Calls, filters and tests: operands[0] is the callee or the input, the rest are positional arguments.
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star, star_star;  // *args, **kwargs
};

// The target of an assignment: a name, namespace.attribute, or a tuple of targets.
struct Target {
  Symbol symbol = -1;
  std::string attribute;
  std::vector<Target> parts;
};

enum class Statement : uint8_t {
  kData,
  kPrint,
  kSet,
  kSetBlock,
  kIf,
  kFor,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kScope,
  kBreak,
  kContinue
};

struct Node;
using Body = std::vector<Node>;

struct Parameter {
  Symbol symbol;
  ExpressionPtr fallback;  // null: none
};

struct Node {
  Statement kind;
  int line;
  std::string data;             // kData; a macro's name
  Target target;                // kSet, kSetBlock, kFor
  std::vector<Target> targets;  // kWith
  std::vector<ExpressionPtr>
      expressions;           // kPrint, kSet, kFor: [iterable, condition or null], kIf: one per branch, kWith: values
  std::vector<Body> bodies;  // kIf: one per branch, then else; kFor: [body, else]; others: [body]
  ExpressionPtr filter;      // kSetBlock, kFilterBlock: its operand[0] is null; may be null
  bool recursive = false;    // kFor
  Symbol name = -1;          // kMacro
  std::vector<Parameter> parameters;                                         // kMacro, kCallBlock
  bool takes_caller = false, takes_named = false, takes_positional = false;  // its body uses caller, kwargs, varargs
};

struct Program {
  std::string source, name;
  std::vector<std::string> symbols;
  Body body;
  Symbol loop = -1, caller = -1, kwargs = -1, varargs = -1;
};

// Throws Error "NAME:LINE: what".
std::shared_ptr<const Program> parse_program(std::string source, std::string name);

Filter find_filter(std::string_view name);  // null: none
Test find_test(std::string_view name);

}  // namespace quire::jinja
