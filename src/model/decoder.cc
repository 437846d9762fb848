#include "model/decoder.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace quire {
namespace {

constexpr int kRowsPerTile = 8;  // of operations on single rows

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// Floats from row to row of `cols` activations: an odd number of cache lines. A linear writes two lines of each of 64
// rows together; with a stride of 4 KiB they would all map to one set of the L1 cache.
int stride_of(int cols) { return ((cols + 15) / 16 | 1) * 16; }
ptrdiff_t row_of(int row, int cols) { return static_cast<ptrdiff_t>(row) * stride_of(cols); }

// Inputs of a linear in each form that its weights need.
struct Inputs {
  std::byte* int8;
  std::byte* floats;
  size_t int8_stride, float_stride;  // bytes from row to row

  std::byte* data(Activations a) const { return a == Activations::kInt8 ? int8 : floats; }
  size_t stride(Activations a) const { return a == Activations::kInt8 ? int8_stride : float_stride; }
};

size_t input_stride(Activations a, int cols) {
  return static_cast<size_t>((cols + kBlockInputs - 1) / kBlockInputs) * activation_block_bytes(a);
}
int qkv_size_of(const ModelConfig& c) { return (c.heads + 2 * c.kv_heads) * c.head_dim; }

// The activations of a step, carved from one allocation: [rows, ...] float32 with a row stride of stride_of(), except
// for cos_sin and logits, which are dense.
struct Buffers {
  float *x, *qkv, *attended, *gated, *last, *cos_sin, *logits;
  std::byte *int8_blocks, *float_blocks;
  size_t bytes = 0;

  Buffers(const ModelConfig& c, const DecoderLimits& l, std::byte* memory) {
    const auto part = [&](int rows, size_t bytes_per_row) {
      const size_t begin = bytes;
      bytes += round_up(static_cast<size_t>(rows) * bytes_per_row, 64);
      return memory ? memory + begin : nullptr;
    };
    const auto floats = [&](int rows, int cols) {
      return reinterpret_cast<float*>(part(rows, static_cast<size_t>(cols) * sizeof(float)));
    };
    const int rows = l.max_rows, widest = std::max({c.hidden, c.ffn, c.heads * c.head_dim});
    x = floats(rows, stride_of(c.hidden));
    qkv = floats(rows, stride_of(qkv_size_of(c)));
    attended = floats(rows, stride_of(c.heads * c.head_dim));
    gated = floats(rows, stride_of(c.ffn));
    last = floats(l.max_logits, stride_of(c.hidden));
    cos_sin = floats(rows, c.rope.dim);
    logits = floats(l.max_logits, c.vocab);
    const auto padded = static_cast<int>(padded_rows(std::max(rows, l.max_logits)));
    int8_blocks = part(padded, input_stride(Activations::kInt8, widest));
    float_blocks = part(padded, input_stride(Activations::kF32, widest));
  }
};

}  // namespace

struct Decoder::State : Buffers {
  const ModelConfig& config;
  const Weights& weights;
  KvMemory& kv;
  Compute compute;
  DecoderLimits limits;
  RopeTable rope;
  AttentionOp attention;
  std::vector<AttentionSpan> spans;
  StepProfile* profile = nullptr;
  LargeBuffer memory;

  State(const ModelConfig& c, const Weights& w, KvMemory& k, const Compute& comp, DecoderLimits l)
      : Buffers(c, l, nullptr),
        config(c),
        weights(w),
        kv(k),
        compute(comp),
        limits(l),
        rope(make_rope_table(c.rope)),
        attention(comp.team, l.max_rows, l.max_positions, c.heads, c.kv_heads, c.head_dim),
        memory(bytes) {
    static_cast<Buffers&>(*this) = Buffers(c, l, memory.data());
    spans.reserve(most_spans(l));
  }
  static size_t most_spans(const DecoderLimits& l) { return static_cast<size_t>(l.max_rows); }

  // Attributes the time since the last call to `op`.
  void done(StepOp op) const {
    if (profile) profile->mark(op);
  }

  Activations needed(const PackedMatrix& m) const { return activations_for(compute.activations, m.type); }

  // Quantizes `in` [rows, cols], normalised if `norm` is set, in each form that the matrices need.
  Inputs prepare(const float* in, int cols, const float* norm, int rows,
                 std::initializer_list<const PackedMatrix*> matrices) {
    Inputs inputs{int8_blocks, float_blocks, input_stride(Activations::kInt8, cols),
                  input_stride(Activations::kF32, cols)};
    bool made[3] = {};
    for (const PackedMatrix* m : matrices) {
      const Activations to = needed(*m);
      if (std::exchange(made[static_cast<size_t>(to)], true)) continue;
      quantize_rows(compute,
                    {.x = in,
                     .x_stride = static_cast<size_t>(stride_of(cols)),
                     .cols = cols,
                     .norm_weight = norm,
                     .epsilon = config.norm_epsilon,
                     .to = to,
                     .out = inputs.data(to),
                     .out_stride = inputs.stride(to)},
                    rows);
    }
    done(StepOp::kNormQuantize);
    return inputs;
  }

  LinearArgs linear(const Inputs& in, const Linear& m, float* y, int y_stride) const {
    const Activations a = needed(m.weight);
    return {.weights = &m.weight,
            .activations = a,
            .x = in.data(a),
            .x_stride = in.stride(a),
            .y = y,
            .y_stride = static_cast<size_t>(y_stride),
            .bias = m.bias_or_null()};
  }

  void embed(const Batch& batch) {
    const auto rows = static_cast<int>(batch.rows.size());
    compute.team.for_tiles((rows + kRowsPerTile - 1) / kRowsPerTile, [&](int tile, int) {
      for (int r = tile * kRowsPerTile; r < std::min(rows, (tile + 1) * kRowsPerTile); ++r) {
        const Row& row = batch.rows[static_cast<size_t>(r)];
        unpack_row(weights.embedding, row.token, x + row_of(r, config.hidden));
        rope.at(row.position, cos_sin + static_cast<ptrdiff_t>(r) * config.rope.dim);
      }
    });
    done(StepOp::kEmbed);
  }

  void attend(int index, const Batch& batch) {
    const LayerWeights& w = weights.layers[static_cast<size_t>(index)];
    const auto rows = static_cast<int>(batch.rows.size());
    const int q_size = config.heads * config.head_dim, kv_size = config.kv_heads * config.head_dim,
              stride = stride_of(qkv_size_of(config));
    const Inputs in = prepare(x, config.hidden, w.attention_norm.data(), rows, {&w.q.weight, &w.k.weight, &w.v.weight});
    const LinearArgs projections[] = {linear(in, w.q, qkv, stride), linear(in, w.k, qkv + q_size, stride),
                                      linear(in, w.v, qkv + q_size + kv_size, stride)};
    linears(compute, projections, rows);
    done(StepOp::kQkv);

    const KvLayer layer = kv.layer(index);
    const auto store_rows = [&](const Span& span, int begin, int end) {
      for (int i = begin; i < end; ++i) {
        const int row = span.row + i, position = span.position + i;
        float* q = qkv + static_cast<ptrdiff_t>(row) * stride;
        const auto head = static_cast<size_t>(config.head_dim);
        const StoreKvArgs store{.k = q + q_size,
                                .v = q + q_size + kv_size,
                                .k_stride = head,
                                .v_stride = head,
                                .kv = &layer,
                                .page = span.pages[static_cast<size_t>(position / kPageTokens)],
                                .slot = position % kPageTokens};
        compute.kernels.prefetch_kv(store);
        compute.kernels.rotate({.x = q,
                                .heads = config.heads + config.kv_heads,  // the keys follow the queries
                                .head_dim = config.head_dim,
                                .head_stride = head,
                                .cos_sin = cos_sin + static_cast<ptrdiff_t>(row) * config.rope.dim,
                                .rope_dim = config.rope.dim,
                                .kind = config.rope.kind});
        compute.kernels.store_kv(store);
      }
    };
    if (batch.spans.size() == 1) {
      compute.team.for_tiles((rows + kRowsPerTile - 1) / kRowsPerTile, [&](int tile, int) {
        store_rows(batch.spans[0], tile * kRowsPerTile, std::min(rows, (tile + 1) * kRowsPerTile));
      });
    } else {
      compute.team.for_tiles(static_cast<int>(batch.spans.size()), [&](int tile, int) {
        const Span& span = batch.spans[static_cast<size_t>(tile)];
        store_rows(span, 0, span.rows);
      });
    }
    done(StepOp::kRopeStore);
    attention.run(compute,
                  {.q = qkv,
                   .q_stride = static_cast<size_t>(stride),
                   .out = attended,
                   .out_stride = static_cast<size_t>(stride_of(q_size)),
                   .kv = &layer,
                   .heads = config.heads,
                   .scale = config.attention_scale,
                   .window = config.windows[static_cast<size_t>(index)]},
                  spans);
    done(StepOp::kAttention);

    const Inputs mixed = prepare(attended, q_size, nullptr, rows, {&w.o.weight});
    LinearArgs output = linear(mixed, w.o, x, stride_of(config.hidden));
    output.accumulate = true;
    linears(compute, {&output, 1}, rows);
    done(StepOp::kO);
  }

  void feed_forward(int index, int rows) {
    const LayerWeights& w = weights.layers[static_cast<size_t>(index)];
    const Inputs in = prepare(x, config.hidden, w.ffn_norm.data(), rows, {&w.gate.weight, &w.up.weight});
    LinearArgs gate = linear(in, w.gate, gated, stride_of(config.ffn));
    gate.up = &w.up.weight;
    gate.nonlinearity = Nonlinearity::kSilu;
    linears(compute, {&gate, 1}, rows);
    done(StepOp::kGateUp);
    const Inputs inner = prepare(gated, config.ffn, nullptr, rows, {&w.down.weight});
    LinearArgs down = linear(inner, w.down, x, stride_of(config.hidden));
    down.accumulate = true;
    linears(compute, {&down, 1}, rows);
    done(StepOp::kDown);
  }

  int output(const Batch& batch) {
    int count = 0;
    for (size_t r = 0; r < batch.rows.size(); ++r) {
      if (!batch.rows[r].wants_logits) continue;
      assert(count < limits.max_logits);
      std::memcpy(last + row_of(count++, config.hidden), x + row_of(static_cast<int>(r), config.hidden),
                  sizeof(float) * static_cast<size_t>(config.hidden));
    }
    if (count == 0) return 0;
    const Inputs in = prepare(last, config.hidden, weights.output_norm.data(), count, {&weights.output.weight});
    const LinearArgs head = linear(in, weights.output, logits, config.vocab);
    linears(compute, {&head, 1}, count);
    done(StepOp::kHead);
    return count;
  }
};

Decoder::Decoder(const ModelConfig& config, const Weights& weights, KvMemory& kv, const Compute& compute,
                 DecoderLimits limits)
    : state_(std::make_unique<State>(config, weights, kv, compute, limits)) {}
Decoder::~Decoder() = default;

std::span<float> Decoder::forward(const Batch& batch) {
  State& s = *state_;
  assert(!batch.rows.empty() && static_cast<int>(batch.rows.size()) <= s.limits.max_rows);
  if (s.profile) s.profile->start();
  s.spans.clear();
  for (const Span& span : batch.spans) {
    s.spans.push_back({.pages = span.pages.data(), .row = span.row, .rows = span.rows, .position = span.position});
  }
  s.embed(batch);
  for (int layer = 0; layer < s.config.layers; ++layer) {
    s.attend(layer, batch);
    s.feed_forward(layer, static_cast<int>(batch.rows.size()));
  }
  const auto count = static_cast<size_t>(s.output(batch));
  return {s.logits, count * static_cast<size_t>(s.config.vocab)};
}

void Decoder::profile(StepProfile* profile) { state_->profile = profile; }
const Compute& Decoder::compute() const { return state_->compute; }

void Decoder::final_hidden(int row, std::span<float> out) const {
  State& s = *state_;
  const auto hidden = static_cast<size_t>(s.config.hidden);
  assert(out.size() == hidden);
  // As the input of the output layer, but as blocks of float32.
  s.compute.kernels.quantize({.x = s.x + row_of(row, s.config.hidden),
                              .x_stride = hidden,
                              .cols = s.config.hidden,
                              .norm_weight = s.weights.output_norm.data(),
                              .epsilon = s.config.norm_epsilon,
                              .to = Activations::kF32,
                              .out = s.float_blocks,
                              .out_stride = 0},
                             0, 1);
  const auto* blocks = reinterpret_cast<const FloatBlock*>(s.float_blocks);
  for (size_t i = 0; i < hidden; ++i) out[i] = blocks[i / kBlockInputs].x[i % kBlockInputs];
}

const DecoderLimits& Decoder::limits() const { return state_->limits; }
size_t Decoder::memory_bytes(const ModelConfig& config, const DecoderLimits& limits, int threads) {
  return Buffers(config, limits, nullptr).bytes +
         AttentionOp::memory_bytes(threads, limits.max_rows, limits.max_positions, config.heads, config.kv_heads,
                                   config.head_dim) +
         State::most_spans(limits) * sizeof(AttentionSpan);
}

}  // namespace quire
