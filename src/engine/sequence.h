// One answer in the making, and what the engine knows of its request.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "engine/scheduler.h"
#include "kv/page_table.h"
#include "quire/engine.h"
#include "sampling/sampler.h"
#include "sampling/stop.h"
#include "text/detokenizer.h"

namespace quire {

using Clock = std::chrono::steady_clock;

// Shared by the n sequences of a request.
struct RequestState {
  RequestId id = 0;
  SamplingParams sampling;
  Engine::Callback callback;
  TokenIds end_tokens;    // the model's, none with ignore_eos
  TokenIds banned_early;  // end and stop tokens: while fewer than min_tokens are there
  int prompt_tokens = 0;
  int max_new_tokens = 0;
  Clock::time_point submitted;
  bool cancelled = false;
};

struct Sequence {
  SequenceId id = 0;
  std::shared_ptr<RequestState> request;
  int choice = 0;
  bool forks_pending = false;  // the first of n > 1: the others begin where its prompt ends

  TokenIds tokens;   // prompt and answer
  int computed = 0;  // tokens whose keys and values are in the pages
  PageTable pages;
  std::vector<int32_t> page_ids;  // pages, as the kernels read them

  std::optional<Detokenizer> detokenizer;  // none: the model has no vocabulary
  StopMatcher stop;
  Clock::time_point first_token;

  Sequence(SequenceId sequence_id, std::shared_ptr<RequestState> r, int index, const TokenIds& prompt,
           const Tokenizer* tokenizer);

  int generated() const { return static_cast<int>(tokens.size()) - request->prompt_tokens; }
  SequenceView view(const PagePool& pool) const;
  // Room for `rows` more tokens; copies of shared pages are appended to `copies`. The scheduler has made sure of the
  // pages.
  void grow(PagePool& pool, int rows, std::vector<PageCopy>& copies);
  void release(PagePool& pool);

  // What `sample` needs to choose the next token of choice `choice_index`.
  SampleRow sample_row(std::span<float> logits, int choice_index) const;
  // Takes a sampled token in, tells the client, and says whether the answer has ended.
  bool accept(const Sampled& sampled);
  // Ends the answer for a reason of its own and tells the client.
  void finish(FinishReason reason, const std::string& error = {});

 private:
  Usage usage() const;
};

}  // namespace quire
