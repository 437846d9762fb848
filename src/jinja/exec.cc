// The evaluator: statements.
#include <algorithm>

#include "jinja/eval.h"
#include "jinja/loop.h"
#include "jinja/value/print.h"

namespace quire::jinja {
namespace {

Ref<Scope> inner_scope(const Ref<Scope>& outer) {
  auto scope = std::make_shared<Scope>();
  scope->parent = outer;
  return scope;
}

}  // namespace

Evaluator::Flow Evaluator::exec(const Body& body, const Ref<Scope>& scope) {
  if (++depth_ > kMaxCallDepth) {
    --depth_;
    throw no_resource("evaluation is nested more than {} deep (a macro that calls itself?)", kMaxCallDepth);
  }
  struct Leave {
    int& depth;
    ~Leave() { --depth; }
  } leave{depth_};
  for (const Node& node : body) {
    meter.step();
    line_ = node.line;
    if (const Flow flow = exec(node, scope); flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::exec(const Node& node, const Ref<Scope>& scope) {
  Flow flow = Flow::kNext;
  switch (node.kind) {
    case Statement::kData:
      write(node.data);
      break;
    case Statement::kPrint:
      for (const ExpressionPtr& e : node.expressions) {
        const Value v = eval(*e, scope);
        if (const Text* t = v.text()) {
          write(t->bytes);
        } else {
          std::string text;
          print(meter, v, text);
          write(text);
        }
      }
      break;
    case Statement::kSet:
      assign(node.target, eval(*node.expressions[0], scope), scope);
      break;
    case Statement::kSetBlock: {
      std::string text;
      flow = exec_captured(node, scope, text);
      Value value = make_text(meter, std::move(text));
      assign(node.target, std::move(value), scope);
      break;
    }
    case Statement::kFilterBlock: {
      std::string text;
      flow = exec_captured(node, scope, text);
      write(text);
      break;
    }
    case Statement::kIf:
      return exec_if(node, scope);
    case Statement::kFor:
      return exec_for(node, scope);
    case Statement::kMacro:
      scope->set(node.name, make_macro(node, scope));
      break;
    case Statement::kCallBlock: {
      const Expression& e = *node.expressions[0];
      const Value callee = eval(*e.operands[0], scope);
      Args args = eval_args(e, scope);
      args.named.emplace_back("caller", make_macro(node, scope));
      std::string text;
      print(meter, call(callee, args), text);
      write(text);
      break;
    }
    case Statement::kWith:
      exec_with(node, scope, flow);
      break;
    case Statement::kScope:
      return exec(node.bodies[0], inner_scope(scope));
    case Statement::kBreak:
      return Flow::kBreak;
    case Statement::kContinue:
      return Flow::kContinue;
  }
  return flow;
}

Evaluator::Flow Evaluator::exec_if(const Node& node, const Ref<Scope>& scope) {
  for (size_t i = 0; i < node.expressions.size(); ++i) {
    meter.step();
    if (is_true(eval(*node.expressions[i], scope))) return exec(node.bodies[i], scope);
  }
  return node.bodies.size() > node.expressions.size() ? exec(node.bodies.back(), scope) : Flow::kNext;
}

Evaluator::Flow Evaluator::exec_for(const Node& node, const Ref<Scope>& scope) {
  return run_loop(node, scope, eval(*node.expressions[0], scope), 0);
}

Evaluator::Flow Evaluator::run_loop(const Node& node, const Ref<Scope>& scope, const Value& iterable, int recursion) {
  std::function<bool(const Value&)> passes;
  if (node.expressions[1] != nullptr) {
    passes = [this, &node, scope](const Value& item) {
      const Ref<Scope> inner = inner_scope(scope);
      assign(node.target, item, inner);
      return is_true(eval(*node.expressions[1], inner));
    };
  }
  const auto loop = std::make_shared<LoopState>(meter, iterate(meter, iterable), std::move(passes), recursion);
  struct End {
    LoopState& loop;
    ~End() { loop.end(); }
  } const end{*loop};
  if (node.recursive) {
    loop->call_again = [&node, scope, recursion](Evaluator& e, const Value& items) {
      return make_text(e.meter, e.capture([&] { e.run_loop(node, scope, items, recursion + 1); }));
    };
  }
  bool entered = false;
  Ref<Scope> inner = inner_scope(scope);
  while (loop->advance()) {
    meter.step();
    entered = true;
    if (inner.use_count() > 1) {
      inner = inner_scope(scope);  // a macro may hold the last scope
    } else {
      inner->variables.clear();
    }
    inner->variables.emplace_back(program_.loop, loop);
    assign(node.target, loop->current(), inner);
    if (exec(node.bodies[0], inner) == Flow::kBreak) break;
  }
  if (!entered && node.bodies.size() > 1) return exec(node.bodies[1], inner_scope(scope));
  return Flow::kNext;
}

// Captures the text of a block and applies the block's filter.
Evaluator::Flow Evaluator::exec_captured(const Node& node, const Ref<Scope>& scope, std::string& text) {
  Flow flow = Flow::kNext;
  text = capture([&] { flow = exec(node.bodies[0], inner_scope(scope)); });
  if (node.filter == nullptr) return flow;
  std::vector<const Expression*> chain;  // a | b | c is linked from c to a
  for (const Expression* e = node.filter.get(); e != nullptr; e = e->operands[0].get()) chain.push_back(e);
  Value value = make_text(meter, std::move(text));
  for (auto it = chain.rbegin(); it != chain.rend(); ++it) value = eval_filter(**it, scope, value);
  text.clear();
  print(meter, value, text);
  return flow;
}

void Evaluator::exec_with(const Node& node, const Ref<Scope>& scope, Flow& flow) {
  const Ref<Scope> inner = inner_scope(scope);
  for (size_t i = 0; i < node.targets.size(); ++i) assign(node.targets[i], eval(*node.expressions[i], scope), inner);
  flow = exec(node.bodies[0], inner);
}

void Evaluator::assign(const Target& target, Value value, const Ref<Scope>& scope) {
  if (!target.parts.empty()) {
    const Values items = iterate(meter, value);
    if (items.size() != target.parts.size())
      throw invalid("{} values to unpack (expected {}, got {})",
                    items.size() > target.parts.size() ? "too many" : "not enough", target.parts.size(), items.size());
    for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i], scope);
    return;
  }
  if (target.attribute.empty()) {
    meter.step(scope->variables.size() / 16);
    scope->set(target.symbol, std::move(value));
    return;
  }
  const Value* found = scope->find(target.symbol);
  if (found == nullptr || !found->is<Ref<Namespace>>())
    throw invalid("cannot assign attribute on non-namespace object '{}'",
                  program_.symbols[static_cast<size_t>(target.symbol)]);
  Namespace& ns = *found->as<Ref<Namespace>>();
  meter.step(ns.attributes.size() / 16);
  for (auto& [name, old] : ns.attributes) {
    if (name != target.attribute) continue;
    std::swap(old, value);  // destroys the old value after storing the new one
    return;
  }
  ns.charge.grow(96);
  ns.attributes.emplace_back(target.attribute, std::move(value));
}

}  // namespace quire::jinja
