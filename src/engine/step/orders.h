// The engine's end of an executor: collects changes of the cache and sends them before anything that depends on them.
#pragma once

#include <exception>
#include <functional>
#include <new>
#include <span>
#include <utility>

#include "engine/step/executor.h"
#include "kv/page_table.h"
#include "kv/unit_pool.h"
#include "quire/error.h"

namespace quire {

// Used by the engine's thread alone. Changes are made in the order in which they were asked for, but advances come before
// copies: a state is copied only after the step that advances it has ended.
class Orders {
  // An Error ends the executor for good.
  template <class Call>
  decltype(auto) unless_gone(Call call) {
    try {
      return call();
    } catch (const Error&) {
      gone_ = true;
      throw;
    }
  }

 public:
  // The executor must outlive this.
  explicit Orders(Executor& executor) : executor_(executor) {}

  void copy(UnitCopy copy) {
    changes_.copies.push_back({.of_state = false, .from = kernel_unit(copy.from), .to = kernel_unit(copy.to)});
  }
  void copy_state(int from, int to) { changes_.copies.push_back({.of_state = true, .from = from, .to = to}); }
  void advance(const StateAdvance& advance) { changes_.advances.push_back(advance); }

  bool computes_apart() const { return executor_.computes_apart(); }
  bool copies_meanwhile() const { return executor_.copies_meanwhile(); }
  // Called while a pass of the target runs, if passes run apart. It may read() and write() if copies_meanwhile().
  void set_meanwhile(std::function<void()> work) { meanwhile_ = std::move(work); }

  // Computes the pass after the collected changes, which become those of `input`. They are made even if the pass fails.
  const ForwardOutput& run(ForwardInput& input) {
    input.changes.clear();
    std::swap(input.changes, changes_);
    return unless_gone([&]() -> const ForwardOutput& {
      executor_.launch(input);
      return wait(!input.by_drafter && executor_.computes_apart());
    });
  }
  // While a pass runs: launches the one after it (Executor::runs_ahead()), unless there are changes that must come before it. Returns
  // whether it did.
  bool run_ahead(ForwardInput& input) {
    if (!changes_.empty()) return false;
    input.changes.clear();
    unless_gone([&] { executor_.launch(input); });
    return true;
  }
  // The result of the pass that was launched ahead.
  const ForwardOutput& finish_ahead() {
    return unless_gone([&]() -> const ForwardOutput& { return wait(true); });
  }
  // to [place.size]. false without memory, and once the executor is gone: sequences can be released even then.
  bool read(const CachePlace& place, std::span<std::byte> to) {
    if (gone_) return false;
    try {
      flush();
      unless_gone([&] { executor_.read(place, to); });
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  void write(const CachePlace& place, std::span<const std::byte> bytes) {
    flush();
    unless_gone([&] { executor_.write(place, bytes); });
  }
  // Makes the collected changes now.
  void flush() {
    if (changes_.empty()) return;
    unless_gone([&] { executor_.commit(changes_); });
    changes_.clear();
  }

 private:
  const ForwardOutput& wait(bool meanwhile) {
    std::exception_ptr failure;
    try {
      if (meanwhile && meanwhile_) meanwhile_();
    } catch (...) {
      failure = std::current_exception();
    }
    const ForwardOutput& output = executor_.wait();
    if (failure) std::rethrow_exception(failure);
    return output;
  }

  Executor& executor_;
  CacheChanges changes_;
  std::function<void()> meanwhile_;
  bool gone_ = false;
};

}  // namespace quire
