#include "cli/bench/limits.h"

#include <algorithm>

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
  work.multiply_adds[static_cast<size_t>(activations_for(mode, weights.type))] =
      static_cast<double>(weights.rows) * weights.cols * rows;
  return work;
}

std::array<Work, kStepOps> step_work(const ModelConfig& config, const Weights& weights, Activations mode, KvType kv,
                                     const Batch& batch) {
  std::array<Work, kStepOps> work{};
  const auto of = [&](StepOp op) -> Work& { return work[static_cast<size_t>(op)]; };
  const auto rows = static_cast<int>(batch.rows.size());
  const auto heads = static_cast<int>(
      std::count_if(batch.rows.begin(), batch.rows.end(), [](const Row& row) { return row.wants_logits; }));
  const double token_bytes =
      config.kv_heads * static_cast<double>(kv_head_bytes(kv, config.head_dim, config.head_dim)) / kPageTokens;
  for (int layer = 0; layer < config.layers; ++layer) {
    const LayerWeights& w = weights.layers[static_cast<size_t>(layer)];
    for (const Linear* m : {&w.q, &w.k, &w.v}) of(StepOp::kQkv) += linear_work(m->weight, mode, rows);
    of(StepOp::kO) += linear_work(w.o.weight, mode, rows);
    for (const Linear* m : {&w.gate, &w.up}) of(StepOp::kGateUp) += linear_work(m->weight, mode, rows);
    of(StepOp::kDown) += linear_work(w.down.weight, mode, rows);

    const int window = config.windows[static_cast<size_t>(layer)];
    double seen = 0;  // tokens that all rows attend to
    for (const Row& row : batch.rows) seen += window > 0 ? std::min(window, row.position + 1) : row.position + 1;
    of(StepOp::kAttention).multiply_adds[static_cast<size_t>(attention_unit(kv))] +=
        2.0 * config.heads * config.head_dim * seen;
    for (const Span& span : batch.spans) {
      const int end = span.position + span.rows, reach = window > 0 ? window + span.rows - 1 : end;
      of(StepOp::kAttention).bytes += token_bytes * std::min(end, reach);
    }
  }
  if (heads > 0) of(StepOp::kHead) += linear_work(weights.output.weight, mode, heads);
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
