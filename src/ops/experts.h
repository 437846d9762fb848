// Mixtures of experts: which experts a row goes to, and the rows of each expert.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/compute.h"
#include "ops/rows.h"

namespace quire {

// How a router's scores become weights. `Scores` as in transformers' implementations of the families.
struct Routing {
  enum class Scores : uint8_t {
    kSoftmax,          // of all experts
    kSigmoid,          // of each
    kSoftmaxOfChosen,  // experts are chosen by the plain scores
    // The softmax of the experts that are left, and near the best of them: best - score <= nearness * max(|score|, best)
    // (SparseMixer of Phi-3.5-MoE: arXiv 2409.12136).
    kSoftmaxOfNear,
  };
  Scores scores = Scores::kSoftmax;
  int experts = 0, used = 0;
  bool normalise = true;            // the chosen weights are divided by their sum
  float scale = 1;                  // multiplies the weights
  int groups = 1, groups_used = 1;  // experts of the best groups may be chosen
  float nearness = 0;               // of kSoftmaxOfNear
  bool group_by_two = false;        // a group's score is the sum of its two best experts, not its best
};

// A step's routes, with memory for its largest step.
class ExpertRows {
 public:
  ExpertRows() = default;
  ExpertRows(int max_rows, int experts, int used);

  // Learned numbers of each expert; nullptr: none.
  struct Learned {
    const float* correction = nullptr;  // added to the scores for choosing only
    const float* scales = nullptr;      // multiply the weights
  };
  // Chooses experts for each row and groups the rows by expert. scores [rows, 2 * experts]: the router's results and as
  // much memory again; overwritten.
  void route(const Compute& compute, const Routing& routing, const Learned& learned, const Rows& scores, int rows);

  // Gathered rows [begin, end) go to the expert; begin is a multiple of kRowGroup.
  struct Expert {
    int expert, begin, end;
  };
  std::span<const Expert> experts() const { return experts_; }
  std::span<const int32_t> sources() const { return sources_; }  // of each gathered row: the row; -1: padding

  // to += the weighted results of each row's experts, in the order of their scores. results: gathered rows.
  void combine(const Compute& compute, const Rows& results, float scale, const Rows& to, int rows) const;

  static int most_gathered(int max_rows, int experts, int used);
  static size_t memory_bytes(int max_rows, int experts, int used);

 private:
  int used_ = 0;
  std::vector<int32_t> chosen_;  // [rows][used]
  std::vector<float> weights_;   // [rows][used]
  std::vector<int32_t> places_;  // [rows][used]: gathered rows
  std::vector<int32_t> sources_;
  std::vector<int32_t> counts_;  // [experts]
  std::vector<Expert> experts_;
};

}  // namespace quire
