// A page cache without a model, and sequences that use it.
#pragma once

#include <algorithm>
#include <cassert>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "engine/cache/page_loader.h"
#include "ops/cpu/cpu_backend.h"

namespace quire::testing {

inline LayerCache tiny_layer(int window = 0) {
  return {.kind = LayerCache::Kind::kKeysValues, .kv_heads = 1, .key_dim = 16, .value_dim = 16, .window = window};
}
inline CacheLayout tiny_layout() { return {KvType::kBf16, {tiny_layer()}}; }
inline LayerCache tiny_state() { return {.kind = LayerCache::Kind::kState, .state_bytes = 1280}; }  // more than a unit
inline constexpr int kTinySequences = 8;  // that have a state at a time
// Computing is so slow that reading a page is always faster.
inline constexpr StepCosts kSlow = StepCosts::line(0, 1, 0);

// Has memory and computes nothing.
class TinyExecutor final : public Executor {
 public:
  explicit TinyExecutor(CacheMemory& memory) : memory_(memory) {}
  void launch(const ForwardInput&) override { assert(false); }
  const ForwardOutput& wait() override { return output_; }
  void commit(const CacheChanges& changes) override {
    for (const CacheCopy& copy : changes.copies) memory_.copy(copy);
  }
  void read(const CachePlace& place, std::span<std::byte> to) override { memory_.read(place, to); }
  void write(const CachePlace& place, std::span<const std::byte> bytes) override { memory_.write(place, bytes); }

 private:
  CacheMemory& memory_;
  ForwardOutput output_;
};

class TinyCache {
 public:
  // Stores up to `stored_pages` in host memory, and 1 MiB in `folder` if one is given.
  TinyCache(int pages, size_t stored_pages, const std::string& folder = {})
      : TinyCache(tiny_layout(), pages, 0, stored_pages, folder) {}
  // `states`: all slots; kTinySequences are of running sequences.
  TinyCache(const CacheLayout& layout, int units, int states, size_t stored_units = 0, const std::string& folder = {})
      : memory_(backend_, {layout, units, states}),
        executor_(memory_),
        orders_(executor_),
        cache(orders_, memory_.shape(), options(layout, stored_units, folder)),
        loader(cache, orders_) {}

  std::unique_ptr<Sequence> waiting(const TokenIds& prompt, int max_new_tokens = 1) {
    auto request = std::make_shared<RequestState>();
    request->prompt_tokens = static_cast<int>(prompt.size());
    request->max_new_tokens = max_new_tokens;
    request->id = RequestId{last_id_ + 1};
    request->submitted = Clock::now();
    auto s = std::make_unique<Sequence>(std::move(request), 0, prompt, nullptr);
    s->id = SequenceId{++last_id_};
    cache.begin(*s);
    return s;
  }
  // "Computes" up to token `end`, as a step does.
  void compute(Sequence& s, int end) {
    const int from = s.computed;
    cache.grow(s, end - from, 0);
    s.computed = end;
    forward(s, from);
    cache.register_finished(s);
  }
  // The forward pass of tokens [from, s.computed). The value of a token is a hash of it and of the value before it, which
  // is read from the cache; units hold the values of their tokens, a state that of the last.
  void forward(const Sequence& s, int from) {
    orders_.flush();
    auto copy = s.cached.state.copies.begin();
    for (int i = from; i < s.computed; ++i) {
      const uint64_t value = next(i > 0 ? read(s, i - 1) : 0, s.tokens[static_cast<size_t>(i)]);
      for (int group = 0; group < cache.shared().groups(); ++group)
        unit(s, group, i) = value + static_cast<uint64_t>(group);
      if (s.cached.state.slot < 0) continue;
      state(s).front() = state(s).back() = value;
      for (; copy != s.cached.state.copies.end() && copy->row == i - from; ++copy)
        memory_.copy({.of_state = true, .from = s.cached.state.slot, .to = copy->slot});
    }
  }
  // Whether the sequence has what its next token sees.
  bool is_right(const Sequence& s) {
    orders_.flush();
    uint64_t value = 0;
    for (int i = 0; i < s.computed; ++i) {
      value = next(value, s.tokens[static_cast<size_t>(i)]);
      for (int group = 0; group < cache.shared().groups(); ++group) {
        const int window = memory_.layout().groups()[static_cast<size_t>(group)].window;
        if (i / kPageTokens < first_visible_page(window, s.computed)) continue;
        if (s.pages.unit(group, i / kPageTokens) == kNoUnit) return false;
        if (unit(s, group, i) != value + static_cast<uint64_t>(group)) return false;
      }
    }
    return memory_.states() == 0 || s.computed == 0 ||
           (s.cached.state.slot >= 0 && state(s).front() == value && state(s).back() == value);
  }
  // Adopts cached pages and "computes" the rest.
  void run(Sequence& s) {
    cache.adopt(s);
    compute(s, static_cast<int>(s.tokens.size()));
  }
  void run_and_end(const TokenIds& prompt) {
    const auto s = waiting(prompt);
    run(*s);
    cache.release(*s);
  }
  void look_up(Sequence& s, const StepCosts& costs = kSlow) { cache.look_up(s, costs, loader.disk_hangs()); }

 private:
  static PageCacheOptions options(const CacheLayout& layout, size_t stored_units, const std::string& folder) {
    PageCacheOptions o;
    o.states = kTinySequences;
    o.host_bytes = stored_units * (layout.unit_bytes() > 0 ? layout.unit_bytes() : layout.state_bytes());
    o.directory = folder;
    o.disk_bytes = size_t{1} << 20;
    return o;
  }

  static uint64_t next(uint64_t value, TokenId token) {
    return (value ^ static_cast<uint64_t>(token + 1)) * 0x9e3779b97f4a7c15u + 1;
  }
  uint64_t& unit(const Sequence& s, int group, int position) {
    const UnitId unit = s.pages.unit(group, position / kPageTokens);
    return reinterpret_cast<uint64_t*>(memory_.unit(kernel_unit(unit)).data())[position % kPageTokens];
  }
  std::span<uint64_t> state(const Sequence& s) {
    const auto bytes = memory_.state(s.cached.state.slot);
    return {reinterpret_cast<uint64_t*>(bytes.data()), bytes.size() / sizeof(uint64_t)};
  }
  uint64_t read(const Sequence& s, int position) {
    const int last = cache.shared().groups() - 1;
    return last < 0 ? state(s).front() : unit(s, last, position) - static_cast<uint64_t>(last);
  }

  Team team_{1};
  CpuBackend backend_{"auto", team_};
  CacheMemory memory_;
  TinyExecutor executor_;
  Orders orders_;
  uint64_t last_id_ = 0;

 public:
  PageCache cache;
  PageLoader loader;
};

inline TokenIds numbers(TokenId first, int pages) {
  TokenIds ids;
  for (int i = 0; i <= pages * kPageTokens; ++i) ids.push_back(first + i);
  return ids;
}

}  // namespace quire::testing
