// A page cache without a model, and sequences that use it.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "engine/page_loader.h"

namespace quire::testing {

inline LayerCache tiny_layer(int window = 0) {
  return {.kind = LayerCache::Kind::kKeysValues, .kv_heads = 1, .key_dim = 16, .value_dim = 16, .window = window};
}
inline CacheLayout tiny_layout() {
  return {KvType::kBf16, {tiny_layer()}};
}
inline LayerCache tiny_state() { return {.kind = LayerCache::Kind::kState, .state_bytes = 64}; }
inline constexpr int kTinySequences = 8;  // that have a state at a time
// Computing is so slow that reading a page is always faster.
inline constexpr StepCosts kSlow{.fixed = 0, .per_row = 1, .per_attended = 0};

class TinyCache {
 public:
  // Stores up to `stored_pages` in host memory, and 1 MiB in `folder` if one is given.
  TinyCache(int pages, size_t stored_pages, const std::string& folder = {})
      : TinyCache(tiny_layout(), pages, 0, stored_pages, folder) {}
  // `states`: all slots; kTinySequences are of running sequences.
  TinyCache(const CacheLayout& layout, int units, int states, size_t stored_units = 0, const std::string& folder = {})
      : memory_(layout, units, states),
        cache(memory_, options(layout, stored_units, folder)),
        loader(cache, memory_) {}

  std::unique_ptr<Sequence> waiting(const TokenIds& prompt) {
    auto request = std::make_shared<RequestState>();
    request->prompt_tokens = static_cast<int>(prompt.size());
    request->max_new_tokens = 1;
    auto s = std::make_unique<Sequence>(std::move(request), 0, prompt, nullptr);
    s->id = SequenceId{++last_id_};
    cache.begin(*s);
    return s;
  }
  // "Computes" up to token `end`, as a step does: states are copied after their rows. A state counts its tokens.
  void compute(Sequence& s, int end) {
    cache.grow(s, end - s.computed);
    if (s.cached.state >= 0) {
      auto at = s.cached.state_copies.begin();
      for (int row = 0; s.computed + row < end; ++row) {
        count(s.cached.state) = s.computed + row + 1;
        for (; at != s.cached.state_copies.end() && at->row == row; ++at) memory_.copy_state(s.cached.state, at->slot);
      }
    }
    s.computed = end;
    cache.register_finished(s);
  }
  int& count(int slot) { return *reinterpret_cast<int*>(memory_.state(slot).data()); }
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
    o.sequences = kTinySequences;
    o.host_bytes = stored_units * layout.unit_bytes();
    o.directory = folder;
    o.disk_bytes = size_t{1} << 20;
    return o;
  }

  CacheMemory memory_;
  uint64_t last_id_ = 0;

 public:
  CacheMemory& memory() { return memory_; }
  PageCache cache;
  PageLoader loader;
};

inline TokenIds numbers(TokenId first, int pages) {
  TokenIds ids;
  for (int i = 0; i <= pages * kPageTokens; ++i) ids.push_back(first + i);
  return ids;
}

}  // namespace quire::testing
