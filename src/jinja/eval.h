// Runs a parsed template once. Filters, tests and methods call back into it.
#pragma once

#include <chrono>
#include <span>
#include <string>

#include "jinja/syntax/ast.h"

namespace quire::jinja {

// The variables of a scope. A for loop, macro or block has its own, which end with it.
struct Scope {
  Ref<Scope> parent;
  std::vector<std::pair<Symbol, Value>> variables;

  const Value* find(Symbol symbol) const;  // in this scope and its parents; null: undefined
  void set(Symbol symbol, Value value);    // in this scope
};

class Evaluator {
 public:
  Evaluator(const Program& program, Meter& meter, std::chrono::local_seconds now);
  ~Evaluator();  // breaks the reference cycles of macros and namespaces
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  void define(const std::string& name, Value value);  // defines a variable; ignored unless the template uses it
  std::string run();
  int line() const { return line_; }  // the current line, for error messages

  Value attribute(const Value& of, const Value& name_value);  // a.b
  Value subscript(const Value& of, const Value& key);         // a[b]
  Value call(const Value& callee, const Args& args);
  Value apply_filter(const std::string& name, const Value& input, const Args& args);
  bool apply_test(const std::string& name, const Value& input, const Args& args);
  Value make_namespace(std::vector<std::pair<std::string, Value>> attributes);

  Meter& meter;
  const std::chrono::local_seconds now;

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class Depth;

  Value eval(const Expression& e, const Ref<Scope>& scope);
  Value eval_name(const Expression& e, const Ref<Scope>& scope);
  Value eval_slice(const Expression& e, const Ref<Scope>& scope);
  Value eval_dict(const Expression& e, const Ref<Scope>& scope);
  Value eval_concat(const Expression& e, const Ref<Scope>& scope);
  bool eval_compare(const Expression& e, const Ref<Scope>& scope);
  Value eval_filter(const Expression& e, const Ref<Scope>& scope, const Value& input);
  Args eval_args(const Expression& e, const Ref<Scope>& scope);
  Value method_or_undefined(const Value& of, std::string_view name);

  Flow exec(const Body& body, const Ref<Scope>& scope);
  Flow exec(const Node& node, const Ref<Scope>& scope);
  Flow exec_if(const Node& node, const Ref<Scope>& scope);
  Flow exec_for(const Node& node, const Ref<Scope>& scope);
  Flow run_loop(const Node& node, const Ref<Scope>& scope, const Value& iterable, int recursion);
  Flow exec_captured(const Node& node, const Ref<Scope>& scope, std::string& text);
  void exec_with(const Node& node, const Ref<Scope>& scope, Flow& flow);
  void assign(const Target& target, Value value, const Ref<Scope>& scope);
  Value make_macro(const Node& node, const Ref<Scope>& scope);
  Value call_macro(const Node& node, const Ref<Scope>& scope, const Args& args);
  void write(std::string_view text);
  std::string capture(const std::function<void()>& body);  // the text that body writes

  const Program& program_;
  Ref<Scope> globals_;
  std::string* out_ = nullptr;
  Charge* out_charge_ = nullptr;
  int depth_ = 0;
  int line_ = 1;
  std::vector<Ref<Scope>> macro_scopes_;
  std::vector<Ref<Namespace>> namespaces_;
};

// The method `name` bound to `self`; nullopt: its type has none. A method that the sandbox forbids is an undefined
// value, which fails when called.
std::optional<Value> find_method(Evaluator& evaluator, const Value& self, std::string_view name);

void define_globals(Evaluator& evaluator);  // range, namespace, dict, raise_exception, strftime_now

// a OP b for the arithmetic operators, with Python's rules and messages.
Value arithmetic(Evaluator& evaluator, Op op, const Value& a, const Value& b);
Value negated(const Value& v, bool negative);

// a[start:stop:step]; null: omitted.
Value slice(Evaluator& evaluator, const Value& of, const Value* start, const Value* stop, const Value* step);

[[noreturn]] void fail_undefined(const Value& v);

}  // namespace quire::jinja
