#include "engine/cache/cache_size.h"

#include <algorithm>

#include "base/error.h"
#include "engine/cache/page_cache.h"
#include "engine/memory_budget.h"

namespace quire {
namespace {

// Checkpoints of states per sequence, and at least: a conversation has one at the end of its prompt and one at the end of
// its answer.
constexpr size_t kCheckpoints = 2, kLeastCheckpoints = 8;

// Tokens that a step computes of a sequence of so many, at least.
int least_chunk(const EngineOptions& options, int tokens) {
  return options.chunked_prefill && options.kv_cache ? 1 : tokens;
}

}  // namespace

size_t least_cache_bytes(const EngineOptions& options, const CacheLayout& layout, int tokens) {
  return layout.sequence_units(tokens, least_chunk(options, tokens)) * layout.unit_bytes() +
         static_cast<size_t>(running_states(options)) * layout.state_bytes();
}

CacheSize size_cache(const EngineOptions& options, const CacheLayout& layout, int model_positions, size_t memory,
                     size_t budget) {
  if (options.kv_cache_bytes > memory)
    throw no_resource("--kv-cache-size is {} MiB, but --memory leaves {} MiB for it; lower it or raise --memory",
                      options.kv_cache_bytes / kMiB, memory / kMiB);
  const size_t unit = layout.unit_bytes(), state = layout.state_bytes();
  const auto sequences = static_cast<size_t>(options.max_num_seqs),
             running = static_cast<size_t>(running_states(options));
  const auto units_of = [&](int tokens) { return layout.sequence_units(tokens, least_chunk(options, tokens)); };
  int length = options.max_model_len > 0 ? options.max_model_len : model_positions;

  const size_t states = state * running;  // those of running sequences
  const size_t checkpoints =
      options.prefix_cache && state > 0 ? std::max(kLeastCheckpoints, kCheckpoints * sequences) : 0;
  // During a chunk of a prompt, the sequence also holds units that are outside its windows once the chunk is done.
  const size_t of_chunk = layout.sequence_units(length, options.max_num_batched_tokens) - layout.sequence_units(length);
  const size_t wanted = (units_of(length) * sequences + of_chunk) * unit + states + checkpoints * state;
  const size_t least = least_cache_bytes(options, layout, length);
  // Without --memory, half of the machine is left to other programs, unless one sequence needs more.
  const size_t share = options.memory_bytes > 0 ? memory : std::max(budget / 2, least);
  const size_t bytes = options.kv_cache_bytes > 0 ? options.kv_cache_bytes : std::min({wanted, memory, share});

  const auto units_in = [&](size_t part) {
    return unit > 0 ? std::min<size_t>((part - std::min(part, states)) / unit, size_t{1} << 30) : 0;
  };
  const auto fits = [&](int tokens) { return states <= bytes && units_of(tokens) <= units_in(bytes); };
  if (!fits(length)) {
    if (options.max_model_len > 0 || !fits(1)) {
      throw no_resource(
          "one sequence of {} tokens needs {} MiB of KV cache, but it has {} MiB; lower --max-model-len{}, choose a "
          "smaller --kv-cache-dtype, or raise --memory or --kv-cache-size",
          length, (least + kMiB - 1) / kMiB, bytes / kMiB, states > 0 ? " or --max-num-seqs" : "");
    }
    int longer = length;
    for (length = 1; longer - length > 1;) {  // `length` fits, `longer` does not
      const int middle = length + (longer - length) / 2;
      (fits(middle) ? length : longer) = middle;
    }
  }
  // One full sequence comes first. If the rest is too small for all that is wanted, checkpoints get their proportional
  // share of it.
  const size_t spare = bytes - std::min(bytes, least), wanted_spare = wanted - least;
  const size_t kept = spare >= wanted_spare ? checkpoints : checkpoints * spare / wanted_spare;

  CacheSize size;
  size.units = static_cast<int>(units_in(bytes - kept * state));
  size.states = state > 0 ? static_cast<int>(running + kept) : 0;
  size.max_model_len = length;
  size.bytes = static_cast<size_t>(size.units) * unit + static_cast<size_t>(size.states) * state;
  size.bytes_per_sequence = layout.bounded_bytes(length);
  return size;
}

}  // namespace quire
