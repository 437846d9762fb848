#include "jinja/eval.h"

#include <algorithm>

#include "jinja/loop.h"
#include "jinja/value/print.h"

namespace quire::jinja {

const Value* Scope::find(Symbol symbol) const {
  for (const Scope* s = this; s != nullptr; s = s->parent.get())
    for (auto it = s->variables.rbegin(); it != s->variables.rend(); ++it)
      if (it->first == symbol) return &it->second;
  return nullptr;
}

void Scope::set(Symbol symbol, Value value) {
  for (auto& [name, old] : variables) {
    if (name != symbol) continue;
    old = std::move(value);
    return;
  }
  variables.emplace_back(symbol, std::move(value));
}

// Counts nested evaluations, so that endless recursion of a macro ends before the stack overflows.
class Evaluator::Depth {
 public:
  explicit Depth(Evaluator& e) : e_(e) {
    if (e_.depth_ >= kMaxCallDepth)
      throw no_resource("evaluation is nested more than {} deep (a macro that calls itself?)", kMaxCallDepth);
    ++e_.depth_;
  }
  ~Depth() { --e_.depth_; }

 private:
  Evaluator& e_;
};

Evaluator::Evaluator(const Program& program, Meter& m, std::chrono::local_seconds clock)
    : meter(m), now(clock), program_(program), globals_(std::make_shared<Scope>()) {
  define_globals(*this);
}

Evaluator::~Evaluator() {
  for (const Ref<Namespace>& ns : namespaces_) ns->attributes.clear();
  for (const Ref<Scope>& scope : macro_scopes_) scope->variables.clear();
}

void Evaluator::define(const std::string& name, Value value) {
  const auto it = std::find(program_.symbols.begin(), program_.symbols.end(), name);
  if (it != program_.symbols.end()) globals_->set(static_cast<Symbol>(it - program_.symbols.begin()), std::move(value));
}

std::string Evaluator::run() {
  auto top = std::make_shared<Scope>();
  top->parent = globals_;
  return capture([&] { exec(program_.body, top); });
}

void Evaluator::write(std::string_view text) {
  meter.step(text.size() / 64);
  if (out_->size() + text.size() > out_->capacity()) {
    const size_t capacity = std::max(out_->size() + text.size(), 2 * out_->capacity());
    out_charge_->grow(capacity - out_->capacity());
    out_->reserve(capacity);
  }
  out_->append(text);
}

std::string Evaluator::capture(const std::function<void()>& body) {
  struct Redirect {
    Redirect(Evaluator& e, std::string& text, Charge& charge)
        : e_(e), out_(std::exchange(e.out_, &text)), charge_(std::exchange(e.out_charge_, &charge)) {}
    ~Redirect() {
      e_.out_ = out_;
      e_.out_charge_ = charge_;
    }
    Evaluator& e_;
    std::string* out_;
    Charge* charge_;
  };
  std::string text;
  Charge charge(meter, 0);
  const Redirect redirect(*this, text, charge);
  body();
  return text;
}

// --- expressions

Value Evaluator::eval(const Expression& e, const Ref<Scope>& scope) {
  const Depth depth(*this);
  meter.step();
  const auto operand = [&](size_t i) { return eval(*e.operands[i], scope); };
  switch (e.op) {
    case Op::kConstant:
      return e.constant;
    case Op::kName:
      return eval_name(e, scope);
    case Op::kAttribute:
      return attribute(operand(0), e.constant);
    case Op::kSubscript: {
      const Value of = operand(0);
      return subscript(of, operand(1));
    }
    case Op::kSlice:
      return eval_slice(e, scope);
    case Op::kCall: {
      const Value callee = operand(0);
      const Args args = eval_args(e, scope);
      line_ = e.line;
      return call(callee, args);
    }
    case Op::kFilter:
      return eval_filter(e, scope, operand(0));
    case Op::kTest: {
      const Value input = operand(0);
      const Args args = eval_args(e, scope);
      line_ = e.line;
      if (e.test == nullptr) throw invalid("there is no test named '{}'", e.name);
      return e.test(*this, input, args);
    }
    case Op::kList:
    case Op::kTuple: {
      Values items;
      items.reserve(e.operands.size());
      for (size_t i = 0; i < e.operands.size(); ++i) items.push_back(operand(i));
      return make_sequence(meter, std::move(items), e.op == Op::kList ? SequenceKind::kList : SequenceKind::kTuple);
    }
    case Op::kDict:
      return eval_dict(e, scope);
    case Op::kNot:
      return !is_true(operand(0));
    case Op::kAnd: {
      Value left = operand(0);
      return is_true(left) ? operand(1) : left;
    }
    case Op::kOr: {
      Value left = operand(0);
      return is_true(left) ? left : operand(1);
    }
    case Op::kNegative:
    case Op::kPositive:
      return negated(operand(0), e.op == Op::kNegative);
    case Op::kConditional:
      if (is_true(operand(0))) return operand(1);
      return e.operands[2] != nullptr ? operand(2)
                                      : make_undefined("the inline if has no else and its condition is false");
    case Op::kConcat:
      return eval_concat(e, scope);
    case Op::kCompare:
      return eval_compare(e, scope);
    default: {
      const Value left = operand(0);
      const Value right = operand(1);
      line_ = e.line;
      return arithmetic(*this, e.op, left, right);
    }
  }
}

Value Evaluator::eval_name(const Expression& e, const Ref<Scope>& scope) {
  size_t variables = 0;  // that may be examined
  for (const Scope* s = scope.get(); s != nullptr; s = s->parent.get()) variables += s->variables.size();
  meter.step(variables / 32);
  if (const Value* found = scope->find(e.symbol)) return *found;
  meter.step(program_.symbols[static_cast<size_t>(e.symbol)].size() / 64);
  return make_undefined("'" + program_.symbols[static_cast<size_t>(e.symbol)] + "' is undefined");
}

Value Evaluator::eval_slice(const Expression& e, const Ref<Scope>& scope) {
  const Value of = eval(*e.operands[0], scope);
  Value part[3];
  for (size_t i = 0; i < 3; ++i)
    if (e.operands[i + 1] != nullptr) part[i] = eval(*e.operands[i + 1], scope);
  const auto given = [&](size_t i) { return e.operands[i + 1] != nullptr ? &part[i] : nullptr; };
  line_ = e.line;
  return slice(*this, of, given(0), given(1), given(2));
}

Value Evaluator::eval_dict(const Expression& e, const Ref<Scope>& scope) {
  std::vector<std::pair<Value, Value>> items;
  items.reserve(e.operands.size() / 2);
  for (size_t i = 0; i < e.operands.size(); i += 2) {
    Value key = eval(*e.operands[i], scope);
    items.emplace_back(std::move(key), eval(*e.operands[i + 1], scope));
  }
  line_ = e.line;
  return make_dict(meter, std::move(items));
}

Value Evaluator::eval_concat(const Expression& e, const Ref<Scope>& scope) {
  std::string text;
  Charge charge(meter, 0);
  for (const ExpressionPtr& part : e.operands) {
    const Value v = eval(*part, scope);
    const size_t before = text.size();
    print(meter, v, text);
    charge.grow(text.size() - before);
  }
  return make_text(meter, std::move(text));
}

bool Evaluator::eval_compare(const Expression& e, const Ref<Scope>& scope) {
  Value left = eval(*e.operands[0], scope);
  for (size_t i = 0; i < e.comparisons.size(); ++i) {
    Value right = eval(*e.operands[i + 1], scope);
    line_ = e.line;
    bool holds = false;
    switch (e.comparisons[i]) {
      case Comparison::kEqual:
        holds = equals(meter, left, right);
        break;
      case Comparison::kNotEqual:
        holds = !equals(meter, left, right);
        break;
      case Comparison::kLess:
        holds = less(meter, left, right, "<");
        break;
      case Comparison::kGreater:
        holds = less(meter, right, left, ">");
        break;
      case Comparison::kLessEqual:
        holds = less(meter, left, right, "<=") || equals(meter, left, right);
        break;
      case Comparison::kGreaterEqual:
        holds = less(meter, right, left, ">=") || equals(meter, left, right);
        break;
      case Comparison::kIn:
        holds = contains(meter, left, right);
        break;
      case Comparison::kNotIn:
        holds = !contains(meter, left, right);
        break;
    }
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Value Evaluator::eval_filter(const Expression& e, const Ref<Scope>& scope, const Value& input) {
  const Args args = eval_args(e, scope);
  line_ = e.line;
  if (e.filter == nullptr) throw invalid("there is no filter named '{}'", e.name);
  return e.filter(*this, input, args);
}

Args Evaluator::eval_args(const Expression& e, const Ref<Scope>& scope) {
  Args args;
  if (e.operands.size() > 1) args.positional.reserve(e.operands.size() - 1);
  for (size_t i = 1; i < e.operands.size(); ++i) args.positional.push_back(eval(*e.operands[i], scope));
  if (e.star != nullptr) {
    Values more = iterate(meter, eval(*e.star, scope));
    meter.step(more.size());
    args.positional.insert(args.positional.end(), more.begin(), more.end());
  }
  for (const auto& [name, value] : e.named) args.named.emplace_back(name, eval(*value, scope));
  if (e.star_star != nullptr) {
    const Value more = eval(*e.star_star, scope);
    if (more.dict() == nullptr) throw invalid("argument after ** must be a mapping, not {}", type_name(more));
    for (const auto& [key, value] : more.dict()->items) {
      meter.step(args.named.size() + 1);
      if (key.text() == nullptr) throw invalid("keywords must be strings");
      for (const auto& [other, unused] : args.named)
        if (other == key.text()->bytes) throw invalid("got multiple values for keyword argument '{}'", other);
      args.named.emplace_back(key.text()->bytes, value);
    }
  }
  return args;
}

// --- calls

Value Evaluator::call(const Value& callee, const Args& args) {
  const Depth depth(*this);
  meter.step();
  if (callee.is_undefined()) fail_undefined(callee);
  if (callee.is<Ref<LoopState>>()) {
    // The copy keeps the loop alive while it runs.
    const Ref<LoopState> loop = callee.as<Ref<LoopState>>();  // NOLINT(performance-unnecessary-copy-initialization)
    if (!loop->call_again) throw invalid("the loop is not recursive: add 'recursive' after its items");
    if (args.positional.size() != 1 || !args.named.empty()) throw invalid("loop(items) takes one argument");
    const auto again = loop->call_again;
    return again(*this, args.positional[0]);
  }
  if (!callee.is<Ref<const Callable>>()) throw invalid("'{}' object is not callable", type_name(callee));
  return callee.as<Ref<const Callable>>()->call(*this, args);
}

Value Evaluator::make_namespace(std::vector<std::pair<std::string, Value>> attributes) {
  const size_t cost = 256 + attributes.size() * 96;
  Ref<Namespace> ns(new Namespace{std::move(attributes), Charge(meter, cost)});
  namespaces_.push_back(ns);
  return ns;
}

Value Evaluator::apply_filter(const std::string& name, const Value& input, const Args& args) {
  const Depth depth(*this);
  const Filter filter = find_filter(name);
  if (filter == nullptr) throw invalid("there is no filter named '{}'", name);
  meter.step();
  return filter(*this, input, args);
}

bool Evaluator::apply_test(const std::string& name, const Value& input, const Args& args) {
  const Test test = find_test(name);
  if (test == nullptr) throw invalid("there is no test named '{}'", name);
  meter.step();
  return test(*this, input, args);
}

Value Evaluator::make_macro(const Node& node, const Ref<Scope>& scope) {
  meter.take(256);  // never returned: macro_scopes_ keeps it until the end
  macro_scopes_.push_back(scope);
  auto macro = std::make_shared<Callable>();
  macro->name = node.data;
  macro->is_macro = true;
  macro->call = [&node, scope](Evaluator& e, const Args& args) { return e.call_macro(node, scope, args); };
  return Ref<const Callable>(std::move(macro));
}

Value Evaluator::call_macro(const Node& node, const Ref<Scope>& outer, const Args& args) {
  auto scope = std::make_shared<Scope>();
  scope->parent = outer;
  const size_t arity = node.parameters.size();
  meter.step(arity * (args.named.size() + arity) / 16);
  std::vector<bool> used(args.named.size());
  const auto named = [&](Symbol symbol) -> const Value* {
    for (size_t i = 0; i < args.named.size(); ++i)
      if (args.named[i].first == program_.symbols[static_cast<size_t>(symbol)])
        return used[i] = true, &args.named[i].second;
    return nullptr;
  };
  for (size_t i = 0; i < arity; ++i) {
    const Parameter& p = node.parameters[i];
    const std::string& name = program_.symbols[static_cast<size_t>(p.symbol)];
    const Value* given = named(p.symbol);
    if (i < args.positional.size()) {
      if (given != nullptr) throw invalid("macro '{}' got two values for the argument '{}'", node.data, name);
      given = &args.positional[i];
    }
    Value value = given != nullptr        ? *given
                  : p.fallback != nullptr ? eval(*p.fallback, scope)
                                          : make_undefined("parameter '" + name + "' was not provided");
    scope->variables.emplace_back(p.symbol, std::move(value));
  }
  if (node.takes_caller && scope->variables.size() == arity) {
    const Value* caller = named(program_.caller);
    scope->set(program_.caller, caller != nullptr ? *caller : make_undefined("No caller defined"));
  }
  if (node.takes_named) {
    std::vector<std::pair<Value, Value>> rest;
    for (size_t i = 0; i < args.named.size(); ++i)
      if (!used[i]) rest.emplace_back(make_text(meter, args.named[i].first), args.named[i].second), used[i] = true;
    scope->set(program_.kwargs, make_dict(meter, std::move(rest)));
  }
  if (const auto it = std::find(used.begin(), used.end(), false); it != used.end())
    throw invalid("macro '{}' takes no keyword argument '{}'", node.data,
                  args.named[static_cast<size_t>(it - used.begin())].first);
  if (node.takes_positional) {
    Values rest;
    if (args.positional.size() > arity)
      rest.assign(args.positional.begin() + static_cast<std::ptrdiff_t>(arity), args.positional.end());
    scope->set(program_.varargs, make_tuple(meter, std::move(rest)));
  } else if (args.positional.size() > arity) {
    throw invalid("macro '{}' takes not more than {} argument(s)", node.data, arity);
  }
  const int line = line_;
  Value text = make_text(meter, capture([&] { exec(node.bodies[0], scope); }));
  line_ = line;
  return text;
}

}  // namespace quire::jinja
