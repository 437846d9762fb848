// A request inside the engine: what was asked for, and how far it is.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "engine/adapters/adapters.h"
#include "grammar/matcher.h"
#include "quire/engine.h"
#include "sampling/dry.h"
#include "sampling/stop.h"

namespace quire {

using Clock = std::chrono::steady_clock;
inline double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

// Short enough that a std::string of it does not allocate.
inline constexpr const char* kOutOfMemory = "out of memory";

// Shared by the n sequences of a request. Four fields of Request are moved out: the prompt into the first sequence,
// sampling.stop into `stops`, sampling.bad_words become banned_runs, and sampling.dry_sequence_breakers dry_breakers.
struct RequestState : Request {
  RequestState() = default;
  explicit RequestState(Request request) : Request(std::move(request)) {}

  RequestId id{};
  Engine::Callback callback;
  TokenIds end_tokens;    // the model's; none with ignore_eos
  TokenIds banned_early;  // end and stop tokens, banned until min_tokens are generated
  std::vector<StopString> stops;
  std::optional<grammar::Matcher> matcher;  // the constraint before the answer
  DryBreakers dry_breakers;
  std::optional<DryRun> dry_run;  // after the prompt; none: no DRY, or no sequence breakers
  int prompt_tokens = 0;
  AdapterLease adapter_lease;  // null: the model itself answers
  int rope_variant = 0;        // which of the model's ropes this prompt takes; its keys depend on it
  int max_new_tokens = 0;
  Clock::time_point submitted;
  Clock::time_point deadline = Clock::time_point::max();

  // From here on only the engine's thread writes.
  static constexpr int kNoTenant = -1;
  int tenant_number = kNoTenant;  // in TenantShares
  int choices_left = 0;           // that have not ended
  bool cancelled = false;
  bool begun = false;  // a step has computed some of it; sets the next two
  Clock::time_point started;
  int cached_tokens = 0;  // prompt tokens that were in the cache

  std::vector<OutputToken> prompt_logprobs;  // by position, filled as the prompt is computed
  std::vector<float> hidden;  // with pooling: the sum of the hidden states that it takes, then the result
};

inline int adapter_number(const RequestState& r) { return r.adapter_lease ? r.adapter_lease->number : -1; }

// Everything a valid request needs that can be allocated in advance, so that few allocations are left to the engine's
// thread. `model_end_tokens`: end-of-generation tokens; banned_runs replaces bad_words and must be set.
std::shared_ptr<RequestState> prepare(Request request, Engine::Callback callback, const TokenIds& model_end_tokens,
                                      int max_model_len);

}  // namespace quire
