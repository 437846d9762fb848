// From a step's logits to tokens and log-probabilities.
#pragma once

#include <exception>
#include <optional>
#include <span>
#include <vector>

#include "base/team.h"
#include "engine/sequence.h"
#include "sampling/sampler.h"

namespace quire {

// What a sequence has got from a step. Its tokens are appended, and the client is to be told.
struct Chosen {
  std::vector<Output> outputs;      // one for each token; the last one may end the answer
  std::optional<FinishReason> end;  // the answer ends without a further token
  std::string_view error;           // with `end`
  int forced = 0;                   // tokens that were not sampled
  int accepted = 0;                 // drafted tokens that were right
  TokenIds predicted;               // on request: the token after each row, chosen or most probable
};

// Samples all sequences of a step in parallel. The caller delivers the results.
class LogitsStage {
 public:
  // Rows of logits of one sequence, and their result.
  struct Task {
    Sequence* sequence = nullptr;
    size_t row = 0;        // the first row of logits
    int position = 0;      // of its token
    bool samples = false;  // chooses tokens; otherwise describes the prompt's token at position + 1
    int drafts = 0;        // that many rows follow, of the sequence's drafts
    Chosen chosen = {};
    Sampled described = {};
    std::exception_ptr failure = {};  // of sampling

    void rethrow_failure() const {
      if (failure) std::rethrow_exception(failure);
    }
  };

  // force: take tokens that a constraint leaves no choice about without sampling them. predict: fill Chosen::predicted of
  // sequences with drafts.
  LogitsStage(Team& team, int vocab, bool force, bool predict);

  // Starts a new step. Tasks are added in the order of the decoder's logits.
  void clear() { tasks_.clear(), rows_ = 0; }
  void add(Sequence& s, int position, bool samples, int drafts = 0);
  std::span<Task> tasks() { return tasks_; }

  // The first tokens of a choice forked from the sequence of a task. Leaves the task's logits as they are, so it comes
  // before sample(). Throws Error and std::bad_alloc.
  Chosen sample_choice(const Task& task, Sequence& choice, std::span<const float> logits);
  // Fills the results. logits: [rows][vocab], overwritten.
  void sample(std::span<float> logits);

 private:
  Team& team_;
  const size_t vocab_;
  const bool force_, predict_;
  std::vector<Task> tasks_;
  size_t rows_ = 0;                      // of logits
  std::vector<SamplerScratch> scratch_;  // one per thread
  std::vector<float> copy_;              // one row
};

}  // namespace quire
