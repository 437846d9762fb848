// Decides which sequences speculate in a step, with which drafter and how deep: the choice that is expected to give the
// most tokens per second of the whole batch. Deterministic, and knows nothing of models, so it is tested by simulation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "speculate/acceptance.h"
#include "speculate/draft_costs.h"

namespace quire {

struct DrafterTraits {
  bool sequential = false;                   // each further token of a draft takes a pass; false: one pass drafts all
  double pass_seconds = 0, row_seconds = 0;  // first guess of its costs (DraftCosts)
};

// A draft that a sequence could have in this step.
struct DraftCandidate {
  int sequence = 0;      // from 0; candidates of a sequence are adjacent
  int drafter = 0;       // index into the traits
  int confidence = 0;    // below kConfidences; expected of the draft if it is not made yet
  int depth = 0;         // tokens, at most
  bool drafted = false;  // the draft is made, so its cost is spent
  const RequestAcceptance* request = nullptr;
};

// The sequences that decode in a step.
struct DraftBatch {
  int sequences = 0;  // with or without candidates; each gets a token without speculation
  std::span<const DraftCandidate> candidates;
  // [1 + most drafted rows] of the step with that many drafted rows, never decreasing. Without the time that rows of
  // prompts add, because they do not serve to generate tokens: seconds[r] = step(all + r) - step(all) + step(decoding).
  std::span<const double> seconds;
};

struct DraftChoice {
  std::vector<int> depths;  // [candidates]; above 0 for at most one of each sequence
  int rows = 0;             // their sum
  // Expected of the decoding part of the step.
  double plain_seconds = 0;  // without drafts
  double seconds = 0;        // with them, and making them
  int sequences = 0;
  double tokens = 0;
  int trial = -1;  // drafter that is tried without being expected to pay; -1: none
};

// A step: choose(), then learn() for each draft and learn_cost() for each drafter, then finish(). Steps whose batch has
// candidates take part even if nothing is drafted. Allocates only while batches grow.
//
// Speculation may lose at most kLossShare of the time, and a few steps: each step adds to a credit, what a drafted step
// takes longer than its tokens would have taken is drawn from it, and without credit nothing is drafted. The credit is
// capped, so a good hour does not pay for a bad minute.
class SpeculationController {
 public:
  static constexpr double kLossShare = 0.02;

  explicit SpeculationController(std::span<const DrafterTraits> drafters);

  // Writes to `choice`, reusing its memory.
  void choose(const DraftBatch& batch, DraftChoice& choice);

  // Of `drafted` tokens, the first `accepted` were right. A draft that was not verified may be learned from too, once
  // the tokens that followed are known: that costs nothing and shows when speculating begins to pay.
  void learn(int drafter, int confidence, int drafted, int accepted, RequestAcceptance& request);
  void learn_cost(int drafter, DraftWork work, double seconds);

  // The step took `seconds`, drafting included, rows of prompts excluded as above; it gave `tokens`.
  void finish(const DraftChoice& choice, double seconds, int tokens);

  const AcceptanceModel& acceptance() const { return acceptance_; }
  const DraftCosts& costs(int drafter) const { return drafters_[static_cast<size_t>(drafter)].costs; }
  double credit() const { return credit_; }  // seconds that speculation may lose now

 private:
  enum class Trial : uint8_t { kNone, kAlone, kInstead /* of drafts that were expected to pay */ };
  struct Drafter {
    DrafterTraits traits;
    DraftCosts costs;
    int idle = 0;      // steps since it drafted last in which it could have
    int interval = 0;  // idle steps before a trial
    Trial trial = Trial::kNone;
    double needed = 0;  // accepted tokens that make the trial a success
    int offered = 0;    // candidates in this step
    int passes = 0;     // in the policy that is evaluated
  };
  // At most one candidate for each sequence, and the rows that they get.
  struct Policy {
    std::vector<int> picks;  // candidates
    std::vector<int> order;  // candidates, one for each row, best first
    size_t rows = 0;         // how much of `order` gives the best rate
    double tokens = 0, seconds = 0, rate = 0;
  };
  struct Next {
    double gain;  // chance that the candidate's next token counts
    int candidate;
    bool operator<(const Next& other) const {
      return gain < other.gain || (gain == other.gain && candidate > other.candidate);
    }
  };

  double chance(int candidate, int depth) const;
  double add_row(const DraftCandidate& c, int depth);
  double value_at(const DraftCandidate& c, int candidate, double row_price, double rate) const;
  template <class Value>
  void pick(const DraftBatch& batch, Policy& policy, Value value);
  void evaluate(const DraftBatch& batch, Policy& policy);
  void find_best(const DraftBatch& batch);
  bool choose_trial(const DraftBatch& batch, DraftChoice& choice);
  void end_trial(Drafter& d, bool success);

  AcceptanceModel acceptance_;
  std::vector<Drafter> drafters_;
  double credit_ = 0, drafting_ = 0;  // drafting: in this step
  bool started_ = false;
  int drafted_steps_ = 0;  // one after the other
  unsigned paying_steps_ = 0;

  // Memory of choose().
  std::vector<AcceptanceChances> chances_;  // [candidates]
  std::vector<Next> heap_;
  std::vector<int> depths_;
  Policy best_, other_;
};

}  // namespace quire
