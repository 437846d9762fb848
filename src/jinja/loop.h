// The variable `loop` of a for statement, and the walk over what is iterated.
#pragma once

#include <functional>
#include <optional>

#include "jinja/value.h"

namespace quire::jinja {

class LoopState {
 public:
  // `passes`: the loop's `if`; empty: everything passes. It runs as late as jinja2 runs it: one item ahead at most.
  LoopState(Meter& meter, Values items, std::function<bool(const Value&)> passes, int recursion);

  bool advance();  // to the next item; false: there is none
  const Value& current() const { return items_[current_]; }
  void end();  // the statement is left: lets go of what may point back at this loop

  // loop.NAME; null: no such thing.
  std::optional<Value> attribute(Evaluator& evaluator, std::string_view name, const Ref<LoopState>& self);

  int value_depth() const { return depth_; }
  int recursion() const { return recursion_; }

  std::function<Value(Evaluator&, const Value&)> call_again;  // loop(items) of a recursive loop

 private:
  size_t next_passing(size_t from);  // items_.size(): none
  size_t peek();
  int64_t length();

  Values items_;
  Charge charge_;
  std::function<bool(const Value&)> passes_;
  std::optional<size_t> ahead_;        // the next item that passes, once someone asked
  size_t current_ = 0, previous_ = 0;  // positions in items_
  int64_t index_ = -1;
  int recursion_, depth_ = 1;
  std::optional<Value> last_changed_;
  bool ended_ = false;
};

}  // namespace quire::jinja
