#include "cli/bench/limits.h"

#include <algorithm>
#include <cmath>

#include "kernels/kernels.h"
#include "model/tensors.h"

namespace quire {

double Samples::median() const {
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const size_t size = sorted.size();
  return (sorted[(size - 1) / 2] + sorted[size / 2]) / 2;
}
double Samples::low() const { return *std::min_element(values.begin(), values.end()); }
double Samples::high() const { return *std::max_element(values.begin(), values.end()); }

Work& Work::operator+=(const Work& other) {
  bytes += other.bytes;
  for (size_t i = 0; i < multiply_adds.size(); ++i) multiply_adds[i] += other.multiply_adds[i];
  return *this;
}

MachineRates median_of(std::span<const MachineRates> all) {
  const auto median = [&](auto value) {
    Samples samples;
    for (const MachineRates& rates : all) samples.add(value(rates));
    return samples.median();
  };
  MachineRates rates{median([](const MachineRates& r) { return r.bandwidth; }), {}};
  for (size_t i = 0; i < rates.multiply_adds.size(); ++i)
    rates.multiply_adds[i] = median([i](const MachineRates& r) { return r.multiply_adds[i]; });
  return rates;
}

double least_seconds(const Work& work, const MachineRates& rates) {
  double multiplying = 0;
  for (size_t i = 0; i < work.multiply_adds.size(); ++i) {
    if (work.multiply_adds[i] > 0) multiplying += work.multiply_adds[i] / rates.multiply_adds[i];
  }
  return std::max(work.bytes / rates.bandwidth, multiplying);
}

Work linear_work(const PackedMatrix& weights, Activations mode, int rows) {
  Work work{.bytes = static_cast<double>(weights.bytes()), .multiply_adds = {}};
  work.multiply_adds[static_cast<size_t>(multiply_unit(activations_for(mode, weights.format)))] =
      static_cast<double>(weights.rows) * weights.cols * rows;
  return work;
}

namespace {

StepOp operation_of(const Slot& slot) {
  switch (slot.tensor) {
    case Tensor::kExpertGate:
    case Tensor::kExpertUp:
    case Tensor::kExpertDown:
      return StepOp::kExperts;
    case Tensor::kQLatent:
    case Tensor::kQOfLatent:
    case Tensor::kKvLatent:
    case Tensor::kKeyOfHead:
    case Tensor::kQ:
    case Tensor::kK:
    case Tensor::kV:
    case Tensor::kAttentionGate:
    case Tensor::kMixIn:
    case Tensor::kDeltaQ:
    case Tensor::kDeltaK:
    case Tensor::kDeltaV:
    case Tensor::kDeltaGate:
    case Tensor::kDeltaDecay:
    case Tensor::kDeltaBeta:
      return StepOp::kQkv;
    case Tensor::kValueOfHead:
    case Tensor::kO:
    case Tensor::kMixOut:
      return StepOp::kO;
    case Tensor::kDown:
    case Tensor::kSharedDown:
      return StepOp::kDown;
    case Tensor::kRouter:
      return StepOp::kRoute;
    case Tensor::kOutput:
      return StepOp::kHead;
    default:
      return StepOp::kGateUp;
  }
}

// Of an expert's work if rows choose their experts at random: the chance that some row chooses it, and the rows that do.
Work expert_work(const Linear& m, Activations mode, int rows, const Routing& r) {
  const double part = static_cast<double>(r.used) / r.experts;
  Work work = linear_work(m.weight, mode, 1);
  work.bytes *= 1 - std::pow(1 - part, rows);
  for (double& count : work.multiply_adds) count *= part * rows;
  return work;
}

}  // namespace

std::vector<Activations> listed(const MultiplyUnits& used) {
  std::vector<Activations> units;
  for (const Activations unit : {Activations::kF32, Activations::kBf16, Activations::kInt8}) {
    if (used[static_cast<size_t>(unit)]) units.push_back(unit);
  }
  return units;
}

std::array<Work, kStepOps> step_work(const ModelConfig& config, const Weights& weights, Activations mode, KvType kv,
                                     const Batch& batch) {
  std::array<Work, kStepOps> work{};
  const auto of = [&](StepOp op) -> Work& { return work[static_cast<size_t>(op)]; };
  const auto rows = static_cast<int>(batch.rows.size());
  const auto heads = static_cast<int>(
      std::count_if(batch.rows.begin(), batch.rows.end(), [](const Row& row) { return row.wants_logits; }));
  for_each_matrix(config, weights, [&](const Slot& slot, const Linear& m) {
    if (is_table(slot.tensor)) return;
    if (slot.tensor == Tensor::kOutput && heads == 0) return;
    if (operation_of(slot) == StepOp::kExperts) {
      const auto& moe = std::get<Moe>(config.layers[static_cast<size_t>(slot.layer)].ffn);
      of(StepOp::kExperts) += expert_work(m, mode, rows, moe.routing);
    } else {
      const Activations form = slot.tensor == Tensor::kRouter ? Activations::kF32 : mode;
      of(operation_of(slot)) += linear_work(m.weight, form, slot.tensor == Tensor::kOutput ? heads : rows);
    }
  });
  for (const LayerSpec& layer : config.layers) {
    const std::optional<AttentionShape> a = attention_shape(layer);
    if (!a) {
      const StateLayout state = state_of(layer.mixer);
      // Decay and recall, learn, and read.
      of(StepOp::kRecurrent).multiply_adds[static_cast<size_t>(Activations::kF32)] +=
          3.0 * static_cast<double>(state.matrix()) * state.heads * rows;
      of(StepOp::kRecurrent).bytes += 2.0 * static_cast<double>(state.bytes() * batch.spans.size());
      continue;
    }
    const double token_bytes =
        a->kv_heads * static_cast<double>(kv_head_bytes(kv, a->key_dim, a->value_dim)) / kPageTokens;
    double seen = 0;  // tokens that all rows attend to
    for (const Row& row : batch.rows) seen += a->window > 0 ? std::min(a->window, row.position + 1) : row.position + 1;
    of(StepOp::kAttention).multiply_adds[static_cast<size_t>(attention_unit(kv))] +=
        static_cast<double>(a->heads) * (a->key_dim + a->value_dim) * seen;
    for (const Span& span : batch.spans) {
      const int end = span.position + span.rows, reach = a->window > 0 ? a->window + span.rows - 1 : end;
      of(StepOp::kAttention).bytes += token_bytes * std::min(end, reach);
    }
  }
  return work;
}

MachineProbe::MachineProbe(const Compute& compute, std::vector<Activations> units)
    : compute_(compute), units_(std::move(units)), reads_(compute.team) {}

MachineRates MachineProbe::measure() {
  MachineRates rates;
  rates.bandwidth = reads_.bandwidth();
  for (const Activations unit : units_)
    rates.multiply_adds[static_cast<size_t>(unit)] = multiply_rate({compute_.kernels, compute_.team, unit}, 3);
  return rates;
}

}  // namespace quire
