// What a step of a model reads and multiplies, part by part, from the model's shape alone; and the least time for it.
//
// The arithmetic is the roofline's (Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009): reading and
// multiplying can overlap, so a part takes at least the longer of the two. Activations stay in the caches and are not
// counted.
#pragma once

#include <array>
#include <numeric>
#include <vector>

#include "kernels/types.h"
#include "model/config.h"
#include "model/step_profile.h"
#include "model/tensors.h"

namespace quire {

// The types of products (multiply_unit()).
inline constexpr std::array<Activations, kMultiplyUnits> kUnits = {Activations::kF32, Activations::kBf16,
                                                                   Activations::kInt8, Activations::kFp8};
// Indexed by them.
using ByMultiplyUnit = std::array<double, kMultiplyUnits>;

struct Work {
  double bytes = 0;  // of weights, keys, values and states, each read once
  ByMultiplyUnit multiply_adds{};

  double total_multiply_adds() const { return std::accumulate(multiply_adds.begin(), multiply_adds.end(), 0.0); }
  Work& operator+=(const Work& other);
};

struct MachineRates {
  double bandwidth = 0;            // bytes per second
  ByMultiplyUnit multiply_adds{};  // per second; 0: the machine has no such unit
};

// Seconds to read alone, and to multiply alone. `rates` must include every unit that `work` uses.
double reading_seconds(const Work& work, const MachineRates& rates);
double multiplying_seconds(const Work& work, const MachineRates& rates);
// The longer of the two.
double least_seconds(const Work& work, const MachineRates& rates);

// Sequences that each compute `rows` tokens in a step, at consecutive positions from `position`.
struct SpanLoad {
  int sequences = 1, rows = 1, position = 0;
};

struct StepLoad {
  std::vector<SpanLoad> spans;
  int logits = 0;  // rows whose logits are wanted

  int rows() const;
  int sequences() const;
};
StepLoad decode_load(int sequences, int position);           // one token each
StepLoad prefill_load(int rows, int position, bool logits);  // a chunk of one prompt

// Matrices of one operation that are alike, all layers together.
struct LinearWork {
  StepOp op = StepOp::kGateUp;
  double bytes = 0, multiply_adds = 0;  // multiply_adds: of one row
  Activations unit = Activations::kF32;
  double used = 1;         // the part of them that a row uses; below 1: of experts
  bool of_logits = false;  // multiplied with the rows whose logits are wanted only
};

// Layers with attention of one shape.
struct AttentionWork {
  AttentionShape shape{};
  double token_bytes = 0;  // that one layer keeps of a token
  int layers = 0;
};

// What steps of a model cost, whatever the step. Its size does not depend on the number of layers that are alike.
struct ModelWork {
  std::vector<LinearWork> linears;
  std::vector<AttentionWork> attention;
  Activations attention_unit = Activations::kBf16;
  double state_bytes = 0;          // of one sequence, in all recurrent layers
  double state_multiply_adds = 0;  // of one row
};

// The unit that attention over a cache of this type multiplies with.
constexpr Activations attention_unit(KvType type) {
  return multiplies_bf16(type) ? Activations::kBf16 : Activations::kF32;
}

// Attention and states of all layers.
void add_mixers(const ModelConfig& config, KvType kv, ModelWork& work);
// A matrix of [rows, cols] that takes so many bytes; tables, whose rows are only looked up, add nothing. unit: what its
// products are computed with.
void add_matrix(const ModelConfig& config, const Slot& slot, double rows, double cols, double bytes, Activations unit,
                ModelWork& work);

// What steps with these weights cost, loaded or merely described (PackedMatrix without data).
ModelWork model_work(const ModelConfig& config, const Weights& weights, Activations activations, KvType kv);

// Which multiply_unit()s something uses, indexed by Activations.
using MultiplyUnits = std::array<bool, kMultiplyUnits>;
std::vector<Activations> listed(const MultiplyUnits& used);
std::vector<Activations> units_of(const ModelWork& work);

// Work of each operation of a step. Rows choose experts at random: the bytes of experts are what is expected to be read.
std::array<Work, kStepOps> step_work(const ModelWork& model, const StepLoad& load);
Work total_work(const std::array<Work, kStepOps>& work);
// The sum of the least times of the operations, which follow one another.
double least_seconds(const std::array<Work, kStepOps>& work, const MachineRates& rates);

// Bytes of one head's scores of a whole prompt, which attention would need without tiles (arXiv 2205.14135).
double score_matrix_bytes(int tokens, KvType type);

}  // namespace quire
