// Mixtures of experts: which experts a row goes to, and what they compute.
#pragma once

#include <cstdint>
#include <span>

#include "ops/linear.h"
#include "ops/rows.h"

namespace quire {

// How a router's scores become weights. `Scores` as in transformers' implementations of the families.
struct Routing {
  enum class Scores : uint8_t {
    kSoftmax,          // over all experts
    kSigmoid,          // each for itself
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
  float nearness = 0;               // for kSoftmaxOfNear
  bool group_by_two = false;        // a group's score is the sum of its two best experts, not its best
};

// What chooses the experts of rows.
struct RouteArgs {
  const Routing& routing;
  const float* correction = nullptr;  // [experts]: added to the scores for choosing only; nullptr: none
  const float* scales = nullptr;      // [experts]: multiply the weights; nullptr: none
  Rows scores;                        // [rows, 2 * experts]: the router's results and as much memory again; overwritten
};

struct ExpertLinears {
  Linear gate, up, down;  // gate: none if the experts are not gated
};

// down(f(gate x) * (up x)) of each row's chosen experts, or down(f(up x)).
struct ExpertArgs {
  std::span<const ExpertLinears> experts;  // their matrices have one shape and type
  bool gated = true;
  Nonlinearity f = Nonlinearity::kSilu;
  float alpha = 0, limit = 0;  // for kClampedSwiglu
  Rows x;                      // [rows, hidden]; may be the target
  Target target;
};

}  // namespace quire
