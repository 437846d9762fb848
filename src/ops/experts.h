// Mixtures of experts: which experts a row goes to, and what they compute.
#pragma once

#include <cstddef>
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
  bool on_host = false;  // for ops/offload/host_experts.h: the vectors are the host's, and so are the experts
};

struct ExpertLinears {
  Linear gate, up, down;  // gate: none if the experts are not gated
};

// What an ExpertSource has done. A layer's step counts an expert once.
struct ExpertReads {
  uint64_t hits = 0, reads = 0;  // experts that were in memory, and those that were read
  uint64_t bytes = 0;            // read
  double read_seconds = 0;       // while at least one read was under way
  double wait_seconds = 0;       // while next() waited for reads

  ExpertReads& operator+=(const ExpertReads& more) {
    hits += more.hits;
    reads += more.reads;
    bytes += more.bytes;
    read_seconds += more.read_seconds;
    wait_seconds += more.wait_seconds;
    return *this;
  }
};

// Has experts in memory while they are computed, if not all can be there at a time. Experts of all layers are numbered in one
// order. Used by one thread at a time.
class ExpertSource {
 public:
  virtual ~ExpertSource() = default;

  // The experts that are computed next, each once. Begins to read those that are not in memory. All of an earlier call have
  // been taken, or next() has thrown.
  virtual void begin(std::span<const int32_t> experts) = 0;
  struct Ready {
    int32_t index;          // in what begin() was given
    const std::byte* data;  // its packed matrices in the backend's memory: gate, unless it has none, up, down
  };
  // Some that have not been returned since begin(), at first those that were in memory: it waits for others only. Empty: that
  // was all. Their memory is valid until the next call. Throws Error if an expert cannot be read.
  virtual std::span<const Ready> next() = 0;
};

// down(f(gate x) * (up x)) of each row's chosen experts, or down(f(up x)).
struct ExpertArgs {
  std::span<const ExpertLinears> experts;  // their matrices have one shape and type
  // Has the data of their matrices; nullptr: they are in memory. first: the number that experts[0] has there.
  ExpertSource* source = nullptr;
  int first = 0;
  bool on_host = false;  // as in the RouteArgs before
  bool gated = true;
  Nonlinearity f = Nonlinearity::kSilu;
  float alpha = 0, limit = 0;  // for kClampedSwiglu
  Rows x;                      // [rows, hidden]; may be the target
  Target target;
};

}  // namespace quire
