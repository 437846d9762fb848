// One answer in the making, and what the engine knows of its request.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "engine/scheduler.h"
#include "kv/page_table.h"
#include "kv/prefix_tree.h"
#include "quire/engine.h"
#include "sampling/sampler.h"
#include "sampling/stop.h"
#include "text/detokenizer.h"

namespace quire {

using Clock = std::chrono::steady_clock;
inline double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

// Shared by the n sequences of a request.
struct RequestState {
  RequestId id{};
  SamplingParams sampling;
  Pooling pooling = Pooling::kNone;
  Engine::Callback callback;
  TokenIds end_tokens;            // the model's, none with ignore_eos
  TokenIds banned_early;          // end and stop tokens: while fewer than min_tokens are there
  TokenRuns banned_runs;          // the spellings of bad words; null: none
  std::vector<StopString> stops;  // moved out of `sampling`
  std::string tenant, cache_salt;
  int priority = 0;
  int tenant_number = 0;  // of TenantShares, while the request is in the engine
  int prompt_tokens = 0;
  int max_new_tokens = 0;
  int choices_left = 0;                  // that have not ended
  int cached_tokens = 0;                 // of the prompt, when the first token was computed
  Clock::time_point submitted, started;  // started: when that was
  Clock::time_point deadline = Clock::time_point::max();
  bool cancelled = false;
  bool begun = false;  // something was computed

  std::vector<OutputToken> prompt_logprobs;  // of all prompt tokens, by position, as far as they are known
  std::vector<float> hidden;                 // with pooling: the sum, or the last token's final hidden state
};

// Short enough to need no memory itself.
inline constexpr const char* kOutOfMemory = "out of memory";

// Ends a choice for which there is no memory. Who has none to take that in either is not told, and the engine goes on.
void refuse(const RequestState& request, int choice);

// What the page cache knows of a sequence.
struct CachedPages {
  PageKey root;
  std::vector<PageKey> keys;                  // of its full pages, as far as they were asked for
  int registered = 0;                         // pages that are nodes of the tree
  PrefixTree::Node last = PrefixTree::kNone;  // the last of them

  // What look_up found for a waiting sequence.
  int found = 0, idle = 0;               // pages in the tree, and those of them that nobody uses
  int stored_begin = 0, stored_end = 0;  // pages behind those that the store has
  int stored_on_disk = 0;                // of them
  int stored_asked = 0;                  // the one to be asked for again next
  int tail = 0;                          // tokens of the page behind `found` that can be copied from another
  int loads = 0;                         // pages behind `found` that are to be read from the store
  double loads_save = 0;                 // seconds that computing them would take

  bool loading = false;
  uint32_t epoch = 0;               // of this loading: what was asked for before is no longer wanted
  int load_next = 0, load_end = 0;  // pages: to ask for next, to stop at
  int pending = 0;                  // asked for, not read yet
  Clock::time_point load_until;     // what is not there then is computed
};

struct Sequence {
  SequenceId id = 0;
  std::shared_ptr<RequestState> request;  // none: the answer has ended, the client knows
  int choice = 0;
  bool forks_pending = false;  // the first of n > 1: the others begin where its prompt ends

  TokenIds tokens;    // prompt and answer
  int computed = 0;   // tokens whose keys and values are in the pages
  bool begun = true;  // something was computed since it was admitted; a further choice begins with what the first has
  PageTable pages;
  std::vector<int32_t> page_ids;  // pages, as the kernels read them
  CachedPages cached;

  std::optional<Detokenizer> detokenizer;  // none: the model has no vocabulary
  StopMatcher stop;
  Clock::time_point first_token;

  Sequence(SequenceId sequence_id, std::shared_ptr<RequestState> r, int index, const TokenIds& prompt,
           const Tokenizer* tokenizer);

  int generated() const { return static_cast<int>(tokens.size()) - request->prompt_tokens; }
  // Every row's result is wanted, so none may be skipped.
  bool wants_all_rows() const {
    return request->sampling.prompt_logprobs ? generated() == 0 && choice == 0 : request->pooling == Pooling::kMean;
  }
  void refresh_page_ids(size_t from = 0);

  // What `sample` needs to choose the next token of choice `choice_index`.
  SampleRow sample_row(std::span<float> logits, int choice_index) const;
  // Takes a sampled token in, tells the client, and says whether the answer has ended.
  bool accept(const Sampled& sampled);
  // Ends the answer for a reason of its own and tells the client; where there is no memory for that, refuses it.
  void finish(FinishReason reason, const std::string& error = {});
  // Ends a request for a vector, likewise.
  void finish_pooling();

 private:
  Usage usage() const;
  void attach_prompt_logprobs(Output& out) const;
  Output ending(FinishReason reason, const std::string& error);
  Output ending_with_vector();
};

}  // namespace quire
