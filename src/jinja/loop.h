// The variable `loop` of a for statement, and the iteration itself.
#pragma once

#include <functional>
#include <optional>

#include "jinja/value/value.h"

namespace quire::jinja {

class LoopState {
 public:
  // `passes`: the loop's `if`; empty: every item passes. It runs as late as in jinja2: at most one item ahead.
  LoopState(Meter& meter, Values items, std::function<bool(const Value&)> passes, int recursion);

  bool advance();  // moves to the next item; false: none is left
  const Value& current() const { return items_[current_]; }
  void end();  // the statement ends: drops references that may form a cycle

  // loop.NAME; nullopt: unknown.
  std::optional<Value> attribute(Evaluator& evaluator, std::string_view name, const Ref<LoopState>& self);

  int value_depth() const { return depth_; }
  int recursion() const { return recursion_; }

  std::function<Value(Evaluator&, const Value&)> call_again;  // loop(items) of a recursive loop

 private:
  size_t next_passing(size_t from);  // items_.size(): none left
  size_t peek();
  int64_t length();

  Values items_;
  Charge charge_;
  std::function<bool(const Value&)> passes_;
  std::optional<size_t> ahead_;        // the next item that passes, once known
  size_t current_ = 0, previous_ = 0;  // positions in items_
  int64_t index_ = -1;
  int recursion_, depth_ = 1;
  std::optional<Value> last_changed_;
  bool ended_ = false;
};

}  // namespace quire::jinja
