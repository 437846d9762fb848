// Engines with drafters over golden models.
#pragma once

#include <cstddef>
#include <functional>
#include <ostream>
#include <string>

#include "engine/cache/page_cache.h"
#include "paths.h"
#include "quire/engine.h"
#include "unit/engine/tiny_engine.h"

namespace quire::testing {

inline std::string golden(const std::string& name) { return (golden_dir() / name).string(); }

// Without speculation.
inline EngineOptions undrafted_options(int max_num_seqs, int max_model_len) {
  EngineOptions o;
  ignore_time(o);
  o.model = golden("models/llama");
  o.threads = 2;
  o.max_num_seqs = max_num_seqs;
  o.max_model_len = max_model_len;
  return o;
}

// With the model's own layer for multi-token prediction.
inline void use_mtp(EngineOptions& o, const std::string& family) {
  o.model = golden("drafters/mtp_" + family);
  o.speculative = Speculation::kMtp;
}

// A drafter, or another change of the options.
struct Choice {
  std::string name;
  std::function<void(EngineOptions&)> change;
  friend std::ostream& operator<<(std::ostream& out, const Choice& c) { return out << c.name; }
};

// Bytes of a KV cache that holds so many sequences of max_model_len, and the states of all that run. The page size depends
// on the drafter. Models with states have no windows here.
inline size_t cache_of(const EngineOptions& o, int longest_sequences) {
  const Engine engine(o);
  const ModelInfo& info = engine.info();
  const size_t state = info.kv_states > 0 ? info.kv_bytes_per_sequence : 0;
  const size_t page =
      (info.kv_cache_bytes - static_cast<size_t>(info.kv_states) * state) / static_cast<size_t>(info.kv_pages);
  return static_cast<size_t>(running_states(o)) * state +
         page * static_cast<size_t>(info.kv_groups * (longest_sequences * info.max_model_len / info.page_tokens + 1));
}

}  // namespace quire::testing
