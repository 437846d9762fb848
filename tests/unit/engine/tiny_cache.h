// A page cache without a model, and sequences that use it.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "engine/page_loader.h"

namespace quire::testing {

inline CacheLayout tiny_layout() {
  return {KvType::kBf16, {{.kind = LayerCache::Kind::kKeysValues, .kv_heads = 1, .key_dim = 16, .value_dim = 16}}};
}
// Computing is so slow that reading a page is always faster.
inline constexpr StepCosts kSlow{.fixed = 0, .per_row = 1, .per_attended = 0};

class TinyCache {
 public:
  // Stores up to `stored_pages` in host memory, and 1 MiB in `folder` if one is given.
  TinyCache(int pages, size_t stored_pages, const std::string& folder = {})
      : memory_(tiny_layout(), pages), cache(memory_, options(stored_pages, folder)), loader(cache, memory_) {}

  std::unique_ptr<Sequence> waiting(const TokenIds& prompt) {
    auto request = std::make_shared<RequestState>();
    request->prompt_tokens = static_cast<int>(prompt.size());
    request->max_new_tokens = 1;
    auto s = std::make_unique<Sequence>(std::move(request), 0, prompt, nullptr);
    s->id = SequenceId{++last_id_};
    cache.begin(*s);
    return s;
  }
  // Adopts cached pages and "computes" the rest.
  void run(Sequence& s) {
    cache.adopt(s);
    const int rows = static_cast<int>(s.tokens.size()) - s.computed;
    cache.grow(s, rows);
    s.computed += rows;
    cache.register_finished(s);
  }
  void run_and_end(const TokenIds& prompt) {
    const auto s = waiting(prompt);
    run(*s);
    cache.release(*s);
  }
  void look_up(Sequence& s, const StepCosts& costs = kSlow) { cache.look_up(s, costs, loader.disk_hangs()); }

 private:
  static PageCacheOptions options(size_t stored_pages, const std::string& folder) {
    PageCacheOptions o;
    o.host_bytes = stored_pages * tiny_layout().unit_bytes();
    o.directory = folder;
    o.disk_bytes = size_t{1} << 20;
    return o;
  }

  CacheMemory memory_;
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
