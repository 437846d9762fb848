#include "plan/work.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <variant>

namespace quire {
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

// The tokens that the rows of a span of one sequence attend to, summed over the rows: each sees those before it and
// itself, at most `window` (0: all).
double attended(const SpanLoad& span, int window) {
  const double rows = span.rows, first = span.position + 1.0, last = first + rows - 1;
  if (window <= 0 || last <= window) return rows * (first + last) / 2;
  if (first >= window) return rows * window;
  const double growing = window - first;  // rows that see less than the window
  return growing * (first + window - 1) / 2 + (rows - growing) * window;
}

// The tokens whose keys and values a span of one sequence reads.
double tokens_read(const SpanLoad& span, int window) {
  const double end = double{1} * span.position + span.rows;
  return window > 0 ? std::min(end, double{1} * window + span.rows - 1) : end;
}

}  // namespace

Work& Work::operator+=(const Work& other) {
  bytes += other.bytes;
  for (size_t i = 0; i < multiply_adds.size(); ++i) multiply_adds[i] += other.multiply_adds[i];
  return *this;
}

double reading_seconds(const Work& work, const MachineRates& rates) { return work.bytes / rates.bandwidth; }

double multiplying_seconds(const Work& work, const MachineRates& rates) {
  double seconds = 0;
  for (size_t i = 0; i < work.multiply_adds.size(); ++i) {
    if (work.multiply_adds[i] > 0) seconds += work.multiply_adds[i] / rates.multiply_adds[i];
  }
  return seconds;
}

double least_seconds(const Work& work, const MachineRates& rates) {
  return std::max(reading_seconds(work, rates), multiplying_seconds(work, rates));
}

int StepLoad::rows() const {
  return std::accumulate(spans.begin(), spans.end(), 0,
                         [](int sum, const SpanLoad& s) { return sum + s.sequences * s.rows; });
}
int StepLoad::sequences() const {
  return std::accumulate(spans.begin(), spans.end(), 0, [](int sum, const SpanLoad& s) { return sum + s.sequences; });
}

StepLoad decode_load(int sequences, int position) { return {{{sequences, 1, position}}, sequences}; }
StepLoad prefill_load(int rows, int position, bool logits) { return {{{1, rows, position}}, logits ? 1 : 0}; }

void add_mixers(const ModelConfig& config, KvType kv, ModelWork& work) {
  work.attention_unit = attention_unit(kv);
  const CacheLayout layout = cache_layout(config, kv);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerSpec& layer = config.layers[i];
    const std::optional<AttentionShape> a = attention_shape(layer);
    if (!a) {
      const StateLayout state = state_of(layer.mixer);
      work.state_bytes += static_cast<double>(state.bytes());
      // Decay and recall, learn, and read.
      work.state_multiply_adds += 3.0 * static_cast<double>(state.matrix()) * state.heads;
      continue;
    }
    const LayerCache keeps{LayerCache::Kind::kKeysValues, a->kv_heads, a->key_dim, a->value_dim, a->window, 0};
    const double token_bytes = static_cast<double>(page_bytes(layout.type(), keeps)) / kPageTokens;
    const auto same = [&](const AttentionWork& known) {
      const AttentionShape& b = known.shape;
      return a->heads == b.heads && a->kv_heads == b.kv_heads && a->key_dim == b.key_dim &&
             a->value_dim == b.value_dim && a->window == b.window;
    };
    const auto known = std::ranges::find_if(work.attention, same);
    if (known == work.attention.end())
      work.attention.push_back({*a, token_bytes, 1});
    else
      ++known->layers;
  }
}

void add_matrix(const ModelConfig& config, const Slot& slot, double rows, double cols, double bytes, Activations unit,
                ModelWork& work) {
  if (is_table(slot.tensor)) return;
  LinearWork w{.op = operation_of(slot),
               .bytes = bytes,
               .multiply_adds = rows * cols,
               .unit = slot.tensor == Tensor::kRouter ? Activations::kF32 : unit,
               .of_logits = slot.tensor == Tensor::kOutput};
  if (w.op == StepOp::kExperts) {
    const Routing& routing = std::get<Moe>(config.layers[static_cast<size_t>(slot.layer)].ffn).routing;
    w.used = static_cast<double>(routing.used) / routing.experts;
  }
  const auto same = [&](const LinearWork& known) {
    return known.op == w.op && known.unit == w.unit && known.used == w.used && known.of_logits == w.of_logits;
  };
  const auto known = std::ranges::find_if(work.linears, same);
  if (known == work.linears.end()) return work.linears.push_back(w);
  known->bytes += w.bytes;
  known->multiply_adds += w.multiply_adds;
}

ModelWork model_work(const ModelConfig& config, const Weights& weights, Activations activations, KvType kv) {
  ModelWork work;
  for_each_matrix(config, weights, [&](const Slot& slot, const Linear& m) {
    const PackedMatrix& w = m.weight;
    add_matrix(config, slot, w.rows, w.cols, static_cast<double>(w.bytes()),
               multiply_unit(activations_for(activations, w.format)), work);
  });
  add_mixers(config, kv, work);
  return work;
}

std::vector<Activations> listed(const MultiplyUnits& used) {
  std::vector<Activations> units;
  for (const Activations unit : kUnits) {
    if (used[static_cast<size_t>(unit)]) units.push_back(unit);
  }
  return units;
}

std::vector<Activations> units_of(const ModelWork& work) {
  MultiplyUnits used{};
  for (const LinearWork& w : work.linears) used[static_cast<size_t>(w.unit)] = true;
  if (!work.attention.empty()) used[static_cast<size_t>(work.attention_unit)] = true;
  if (work.state_multiply_adds > 0) used[static_cast<size_t>(Activations::kF32)] = true;
  return listed(used);
}

std::array<Work, kStepOps> step_work(const ModelWork& model, const StepLoad& load) {
  std::array<Work, kStepOps> work{};
  const auto of = [&](StepOp op) -> Work& { return work[static_cast<size_t>(op)]; };
  const int all_rows = load.rows();
  for (const LinearWork& w : model.linears) {
    const int rows = w.of_logits ? load.logits : all_rows;
    if (rows == 0) continue;
    // The chance that some row chooses an expert, and the rows that do.
    of(w.op).bytes += w.bytes * (w.used < 1 ? 1 - std::pow(1 - w.used, rows) : 1);
    of(w.op).multiply_adds[static_cast<size_t>(w.unit)] += w.multiply_adds * w.used * rows;
  }
  for (const AttentionWork& a : model.attention) {
    const double products = double{1} * a.shape.heads * (a.shape.key_dim + a.shape.value_dim) * a.layers;
    for (const SpanLoad& span : load.spans) {
      of(StepOp::kAttention).multiply_adds[static_cast<size_t>(model.attention_unit)] +=
          products * attended(span, a.shape.window) * span.sequences;
      of(StepOp::kAttention).bytes += a.token_bytes * a.layers * tokens_read(span, a.shape.window) * span.sequences;
    }
  }
  // A state is read and written.
  of(StepOp::kRecurrent).bytes += 2 * model.state_bytes * load.sequences();
  of(StepOp::kRecurrent).multiply_adds[static_cast<size_t>(Activations::kF32)] += model.state_multiply_adds * all_rows;
  return work;
}

Work total_work(const std::array<Work, kStepOps>& work) {
  Work sum;
  for (const Work& w : work) sum += w;
  return sum;
}

double least_seconds(const std::array<Work, kStepOps>& work, const MachineRates& rates) {
  return std::accumulate(work.begin(), work.end(), 0.0,
                         [&](double sum, const Work& w) { return sum + least_seconds(w, rates); });
}

double score_matrix_bytes(int tokens, KvType type) {
  return static_cast<double>(kv_bytes(type, static_cast<size_t>(tokens) * static_cast<size_t>(tokens)));
}

}  // namespace quire
