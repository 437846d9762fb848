#include "model/decoder.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "model/blocks/blocks.h"
#include "model/stages/cut_layers.h"

namespace quire {

void project(const Step& step, const Rows& x, const NormView& norm, const Linear& w, const Target& target, StepOp op) {
  const Inputs in = step.ops.prepare(x, norm, step.rows, {&w});
  step.done(StepOp::kNormQuantize);
  step.ops.project(in, {.w = &w, .y = target.to, .scale = target.scale, .accumulate = target.accumulate}, step.rows);
  adapt(step, x, norm, {{&w, target}});
  step.done(op);
}

void keep_updates(const Step& step, int layer, std::initializer_list<Rows> parts) {
  if (step.drafted.empty()) return;
  const Rows& kept = step.work.updates[static_cast<size_t>(layer)];
  int col = 0;
  for (const Rows& part : parts) {
    step.ops.gather(part, step.drafted, kept.columns(col, part.cols));
    col += part.cols;
  }
}

NormView view(const Norm& norm, const NormWeights& w) {
  return {norm.kind, norm.epsilon, w.weight.data(), w.bias.data()};
}

struct Decoder::State {
  const ModelConfig& config;
  const Weights& weights;
  CacheMemory& cache;
  Backend& backend;
  DecoderLimits limits;
  int first_layer;
  LayerRange layers;
  std::unique_ptr<Operations> operations;
  Operations& ops = *operations;
  Workspace work;
  std::vector<std::vector<AttentionSpan>> spans;  // per group of the cache layout
  std::vector<StateSpan> states;                  // empty if no layer is recurrent
  std::vector<int32_t> drafted;                   // rows; likewise
  int kept = 0;                                   // drafted rows of the batch so far
  std::map<int, std::vector<RopeTable>> ropes;    // by variant, of each rope
  std::vector<RotationSpan> rotations;
  std::vector<float> q_scales;       // for each row, if a layer scales queries by their position
  std::vector<float> output_scales;  // for each layer
  HostCopy host_logits;
  StepProfile* profile = nullptr;
  std::vector<const Adapter*> adapters;  // by number
  std::vector<AdaptedRows> adapted;
  std::vector<LowRankProduct> products;
  std::vector<Vector> directions;  // of control vectors, by layer; empty: none

  State(const ModelConfig& c, const Weights& w, CacheMemory& k, Backend& b, Activations activations, DecoderLimits l,
        int first, LayerRange own)
      : config(c),
        weights(w),
        cache(k),
        backend(b),
        limits(l),
        first_layer(first),
        layers(own == LayerRange() ? LayerRange{0, static_cast<int>(c.layers.size())} : own),
        operations(b.operations(activations, operation_limits(c, l))),
        work(b, c, l),
        spans(k.layout().groups().size()) {
    for (auto& of_group : spans) of_group.reserve(most_spans(l));
    states.reserve(most_spans(l));
    drafted.reserve(static_cast<size_t>(l.max_drafted));
    rotations.reserve(most_spans(l));
    if (l.max_rank > 0) {
      adapted.reserve(most_spans(l));
      products.reserve(kMostChanged * most_spans(l));
    }
    q_scales.resize(static_cast<size_t>(work.q_scales.cols));
    for (size_t i = 0; i < c.layers.size(); ++i) {
      const Vector& scale = w.layers[i].output_scale;
      output_scales.push_back(scale.empty() ? 1 : scale.values(b)[0]);
    }
    rope_tables(0);
  }
  static size_t most_spans(const DecoderLimits& l) { return static_cast<size_t>(l.max_rows); }

  // Valid until the next batch.
  const std::vector<RopeTable>& rope_tables(int variant) {
    if (const auto known = ropes.find(variant); known != ropes.end()) return known->second;
    std::vector<RopeTable> tables;
    for (const RopeConfig& rope : config.ropes) tables.push_back(make_rope_table(rope, variant));
    return ropes.emplace(variant, std::move(tables)).first->second;
  }

  void done(StepOp op) const {
    if (!profile) return;
    ops.finish();
    profile->mark(op);
  }
  void enter_layer(int layer) const {
    if (profile) profile->set_layer(layer);
  }

  // A batch, or a part of one that has `drafts_before` drafted rows before it.
  void begin(const Batch& batch, int drafts_before = 0) {
    for (size_t g = 0; g < spans.size(); ++g) {
      spans[g].clear();
      for (const Span& span : batch.spans)
        spans[g].push_back({span.tables[g].data(), span.row, span.rows, span.position});
    }
    adapted.clear();
    for (const Span& span : batch.spans) {
      if (span.adapter < 0) continue;
      assert(std::cmp_less(span.adapter, adapters.size()));
      const Adapter* const adapter = adapters[static_cast<size_t>(span.adapter)];
      const bool continues =
          !adapted.empty() && adapted.back().adapter == adapter && adapted.back().row + adapted.back().rows == span.row;
      if (continues) {
        adapted.back().rows += span.rows;
      } else {
        adapted.push_back({adapter, span.row, span.rows});
      }
    }
    states.clear();
    drafted.clear();
    kept = 0;
    if (cache.layout().state_bytes() == 0) return;
    for (const Span& span : batch.spans) {
      states.push_back({span.row, span.rows, span.position, span.state, span.state_copies});
      for (int i = span.rows - span.drafts; i < span.rows; ++i) drafted.push_back(span.row + i);
    }
    kept = drafts_before + static_cast<int>(drafted.size());
    assert(kept <= limits.max_drafted);
  }

  // x = the tokens' embeddings, or the vectors that rows bring instead; and what depends on the rows' positions alone.
  void embed(const Batch& batch) {
    work.ids.clear();
    for (const Row& row : batch.rows) work.ids.push_back(row.token);
    if (batch.picked.empty()) {
      ops.embed(weights.embedding.weight, work.ids, config.embedding_scale, work.x);
    } else {
      assert(batch.picked.size() == batch.rows.size() && takes_picked_tokens(config));
      ops.embed_picked(weights.embedding.weight, batch.picked, config.embedding_scale, work.x);
    }
    take_vectors(batch);
    const auto rows = static_cast<int>(batch.rows.size());
    if (config.per_layer_dim > 0) per_layer_embeddings(step(rows), weights);
    const auto add_rows_of = [&](const Linear& table, int32_t Row::*id) {
      work.ids.clear();
      for (const Row& row : batch.rows) work.ids.push_back(row.*id);
      ops.add_embeddings(table.weight, work.ids, 1, work.branch, work.x);
    };
    if (config.learned_positions) add_rows_of(weights.positions, &Row::position);
    if (config.segments > 0) add_rows_of(weights.segments, &Row::segment);
    if (config.embedding_norm) {
      ops.normalize(work.x, view(config.embedding_norm, weights.embedding_norm), {work.x}, rows);
    }
    if (config.altup.streams > 0) altup_begin(step(rows), weights);
    angles(batch);
    done(StepOp::kEmbed);
  }

  // In place of embeddings. Tables of embeddings per layer have none for them: they count as the padding token, 0.
  void take_vectors(const Batch& batch) {
    const auto rows = static_cast<int>(work.ids.size());
    const auto is_vector = [&](int row) { return work.ids[static_cast<size_t>(row)] == kNoToken; };
    for (int row = 0, taken = 0; row < rows; ++row) {
      if (!is_vector(row)) continue;
      const int first = row;
      for (; row < rows && is_vector(row); ++row) work.ids[static_cast<size_t>(row)] = 0;
      ops.copy(batch.vectors.from(taken), work.x.from(first), row - first);
      taken += row - first;
    }
  }

  // Cosines and sines of all rows, and the scales of their queries.
  void angles(const Batch& batch) {
    // With dynamic scaling, every length of a prompt is a variant. The usual one is the first.
    constexpr size_t kMostVariants = 64;
    if (ropes.size() >= kMostVariants) ropes.erase(std::next(ropes.begin()), ropes.end());
    for (size_t i = 0; i < config.ropes.size(); ++i) {
      rotations.clear();
      for (const Span& span : batch.spans)
        rotations.push_back({&rope_tables(span.rope_variant)[i], span.row, span.rows, span.position});
      ops.rotations(rotations, work.cos_sin[i]);
    }
    if (q_scales.empty()) return;
    for (const Span& span : batch.spans) scale_queries(span);
    ops.upload(std::span(q_scales).first(batch.rows.size()), work.q_scales.data);
  }

  void scale_queries(const Span& span) {
    const auto scaled = std::ranges::find_if(config.layers, scales_queries);
    const auto& a = std::get<Attention>(scaled->mixer);  // all layers scale alike
    for (int r = 0; r < span.rows; ++r) {
      const double distance = std::floor((span.position + r) / static_cast<double>(a.query_positions));
      q_scales[static_cast<size_t>(span.row + r)] = static_cast<float>(1 + a.query_beta * std::log1p(distance));
    }
  }

  Step step(int rows) {
    return {config, ops, cache, work, spans, states, drafted, rows, first_layer, profile, adapted, products};
  }

  void advance(std::span<const StateAdvance> advances) {
    states.clear();
    int rows = 0;
    for (const StateAdvance& a : advances) {
      assert(a.rows > 0 && a.row + a.rows <= kept);
      // Drafts follow other rows, so no state is empty; which position it is does not matter.
      states.push_back({.row = a.row, .rows = a.rows, .position = 1, .slot = a.slot, .copies = {}});
      rows = std::max(rows, a.row + a.rows);
    }
    const Step step = this->step(rows);
    for (int index = layers.begin; index < layers.end; ++index) {
      const auto i = static_cast<size_t>(index);
      const Mixer& mixer = config.layers[i].mixer;
      const LayerWeights& w = weights.layers[i];
      if (const auto* m = std::get_if<ShortConv>(&mixer)) advance_states(step, index, *m, w.short_conv);
      if (const auto* m = std::get_if<GatedDelta>(&mixer)) advance_states(step, index, *m, w.gated_delta);
      if (const auto* m = std::get_if<Mamba2>(&mixer)) advance_states(step, index, *m, w.mamba2);
    }
    ops.finish();
  }

  void layer(size_t i, int rows) {
    const LayerSpec& spec = config.layers[i];
    const LayerWeights& w = weights.layers[i];
    const Step step = this->step(rows);
    if (config.altup.streams > 0) return altup_layer(step, static_cast<int>(i), spec, w);
    const NormView mixer_in = view(spec.mixer_in, w.mixer_in),
                   ffn_in = spec.shared_norm ? mixer_in : view(spec.ffn_in, w.ffn_in);
    const auto mixer = [&](const Target& target) {
      const auto index = static_cast<int>(i);
      if (const auto* m = std::get_if<Attention>(&spec.mixer))
        attention_block(step, index, *m, w.attention, mixer_in, target);
      if (const auto* m = std::get_if<Mla>(&spec.mixer)) mla_block(step, index, *m, w.mla, mixer_in, target);
      if (const auto* m = std::get_if<ShortConv>(&spec.mixer))
        short_conv_block(step, index, *m, w.short_conv, mixer_in, target);
      if (const auto* m = std::get_if<GatedDelta>(&spec.mixer))
        gated_delta_block(step, index, *m, w.gated_delta, mixer_in, target);
      if (const auto* m = std::get_if<Mamba2>(&spec.mixer)) mamba2_block(step, index, *m, w.mamba2, mixer_in, target);
    };
    const auto ffn = [&](const Target& target) {
      if (const auto* mlp = std::get_if<Mlp>(&spec.ffn)) mlp_block(step, *mlp, w.mlp, work.x, ffn_in, target);
      if (const auto* moe = std::get_if<Moe>(&spec.ffn)) moe_block(step, *moe, w.moe, ffn_in, target);
    };
    if (spec.joined) return mixer({work.branch, spec.mixer_scale});
    if (spec.parallel) {  // both read x, so the first result waits
      mixer({work.branch, spec.mixer_scale});
      ffn({work.x, spec.ffn_scale, true});
      ops.add(work.branch, 1, work.x, rows);
      return;
    }
    const auto add_branch = [&](const auto& block, float scale, const Norm& norm, const NormWeights& norm_weights) {
      const Target residual{work.x, scale, true};
      if (!norm) return block(residual);
      if (spec.norm_sums) {
        block(residual);
        return ops.normalize(work.x, view(norm, norm_weights), {work.x}, rows);
      }
      block({work.branch});
      ops.normalize(work.branch, view(norm, norm_weights), residual, rows);
    };
    add_branch(mixer, spec.mixer_scale, spec.mixer_out, w.mixer_out);
    if (i > 0 && config.layers[i - 1].joined) ops.add(work.branch, 1, work.x, rows);
    add_branch(ffn, spec.ffn_scale, spec.ffn_out, w.ffn_out);
    if (config.per_layer_dim > 0) per_layer_block(step, static_cast<int>(i), w, work.x, {work.x, 1, true});
    if (spec.output_scale) ops.scale(work.x, output_scales[i], rows);
  }

  void add_direction(size_t layer, int rows) {
    if (directions.empty() || directions[layer].empty()) return;
    // One row for all: its stride is 0. Operations only read it.
    ops.add({const_cast<float*>(directions[layer].data()), config.hidden, 0}, 1, work.x, rows);
  }

  void run_layers(LayerRange range, int rows) {
    for (int i = range.begin; i < range.end; ++i) {
      enter_layer(i);
      layer(static_cast<size_t>(i), rows);
      add_direction(static_cast<size_t>(i), rows);
    }
    enter_layer(-1);
  }

  // What layers from `layer` on read of those before them: border_width() columns.
  std::vector<Rows> border(int layer) const {
    std::vector<Rows> parts = work.streams;
    if (parts.empty()) parts.push_back(work.x);
    const auto after = static_cast<int>(config.layers.size()) - layer;
    if (const int dim = config.per_layer_dim; dim > 0)
      parts.push_back(work.per_layer.columns(layer * dim, after * dim));
    return parts;
  }

  // The rows of x that want something, to the first rows of `to`. Returns their number.
  int gather_rows(const Batch& batch, bool Row::*wants, const Rows& to) {
    work.ids.clear();
    for (size_t r = 0; r < batch.rows.size(); ++r) {
      if (batch.rows[r].*wants) work.ids.push_back(static_cast<int32_t>(r));
    }
    if (!work.ids.empty()) ops.gather(work.x, work.ids, to);
    return static_cast<int>(work.ids.size());
  }

  NormView output_norm() const { return view(config.output_norm, weights.output_norm); }

  void take_hidden(const Batch& batch) {
    assert(std::ranges::count(batch.rows, true, &Row::wants_hidden) <= limits.max_hidden);
    const int count = gather_rows(batch, &Row::wants_hidden, work.hidden);
    if (count > 0) ops.normalize(work.hidden, output_norm(), {work.hidden}, count);
  }

  std::span<float> logits(const Batch& batch, const Linear& matrix, bool reads = true) {
    assert(config.has_logits || std::ranges::none_of(batch.rows, &Row::wants_logits));
    assert(std::ranges::count(batch.rows, true, &Row::wants_logits) <= limits.max_logits);
    const int count = gather_rows(batch, &Row::wants_logits, work.last);
    if (count == 0) {
      if (reads) ops.finish();
      return {};
    }
    const Inputs in = ops.prepare(work.last, output_norm(), count, {&matrix});
    done(StepOp::kNormQuantize);
    output_logits(ops, config, in, matrix, count, work.logits.data);
    if (!reads) return done(StepOp::kHead), std::span<float>();
    ops.finish();
    const size_t numbers = static_cast<size_t>(count) * static_cast<size_t>(matrix.weight.rows);
    const std::span<float> logits = view_floats(backend, work.logits.data, numbers, host_logits);
    done(StepOp::kHead);
    return logits;
  }
};

Decoder::Decoder(const ModelConfig& config, const Weights& weights, CacheMemory& cache, Backend& backend,
                 Activations activations, DecoderLimits limits, int first_layer, LayerRange layers)
    : state_(std::make_unique<State>(config, weights, cache, backend, activations, limits, first_layer, layers)) {}
Decoder::~Decoder() = default;

std::span<float> Decoder::forward(const Batch& batch, const Pass& pass) {
  State& s = *state_;
  assert(!batch.rows.empty() && static_cast<int>(batch.rows.size()) <= s.limits.max_rows);
  assert(pass.layers == 0 || can_exit_after(s.config, pass.layers));
  assert(std::cmp_equal(s.layers.end - s.layers.begin, s.config.layers.size()));
  const auto rows = static_cast<int>(batch.rows.size());
  if (s.profile) s.profile->start();
  s.begin(batch);
  s.embed(batch);
  s.run_layers({0, pass.layers > 0 ? pass.layers : s.layers.end}, rows);
  if (s.config.altup.streams > 0) altup_end(s.step(rows), s.weights);
  s.take_hidden(batch);
  return s.logits(batch, pass.output ? *pass.output : s.weights.output, pass.reads_logits);
}

// Only the layers go part by part. The output is computed for all rows at once: so its matrix is read once, and it is no later,
// because the last part ends when the step does.
std::span<float> Decoder::forward(const Batch& batch, std::span<const MicroBatch> parts, StageLink& link) {
  State& s = *state_;
  assert(!batch.rows.empty() && static_cast<int>(batch.rows.size()) <= s.limits.max_rows);
  if (s.profile) s.profile->start();
  const bool last = is_last(s.config, s.layers);
  for (const MicroBatch& part : parts) {
    s.work.begin_at(part.row, part.drafted);
    const Batch rows{batch.rows.subspan(static_cast<size_t>(part.row), static_cast<size_t>(part.rows)), part.spans};
    s.begin(rows, part.drafted);
    if (s.layers.begin == 0) {
      s.embed(rows);
    } else {
      s.angles(rows);
      link.receive(s.border(s.layers.begin), part.row, part.rows);
    }
    s.run_layers(s.layers, part.rows);
    if (last && s.config.altup.streams > 0) altup_end(s.step(part.rows), s.weights);
    s.ops.finish();
    if (!last) link.send(s.border(s.layers.end), part.row, part.rows);
  }
  s.work.begin_at(0, 0);
  if (!last) return {};
  s.take_hidden(batch);
  return s.logits(batch, s.weights.output);
}

void Decoder::advance(std::span<const StateAdvance> advances) { state_->advance(advances); }

Rows Decoder::logits() const { return state_->work.logits; }
Rows Decoder::hidden() const { return state_->work.hidden; }

void Decoder::set_adapter(int number, const Adapter& adapter) {
  assert(number >= 0 && adapter.rank <= state_->limits.max_rank);
  const auto at = static_cast<size_t>(number);
  if (at >= state_->adapters.size()) state_->adapters.resize(at + 1);
  state_->adapters[at] = &adapter;
}

void Decoder::set_directions(std::vector<Vector> directions) {
  assert(directions.empty() || directions.size() == state_->config.layers.size());
  state_->directions = std::move(directions);
}

void Decoder::profile(StepProfile* profile) { state_->profile = profile; }
uint64_t Decoder::take_expert_bytes() { return state_->ops.take_expert_bytes(); }
Operations& Decoder::operations() const { return state_->ops; }

void Decoder::final_hidden(std::span<const int32_t> rows, const Rows& out) const {
  State& s = *state_;
  assert(out.cols == s.config.hidden);
  s.ops.gather(s.work.x, rows, out);
  s.ops.normalize(out, s.output_norm(), {out}, static_cast<int>(rows.size()));
}

void Decoder::pool(std::span<const float> hidden, std::span<float> out) const {
  State& s = *state_;
  assert(std::cmp_equal(hidden.size(), s.config.hidden) && std::cmp_equal(out.size(), pooled_size(s.config)));
  Rows x = s.work.pooled.columns(0, s.config.hidden);
  s.ops.upload(hidden, x.data);
  for (size_t i = 0; i < s.weights.pooled.size(); ++i) {
    const PooledLayer& layer = s.config.pooled.layers[i];
    const PooledWeights& w = s.weights.pooled[i];
    const Rows y = s.work.pooled.from(static_cast<int>(i + 1) % 2).columns(0, layer.size);
    const Inputs in = s.ops.prepare(x, {}, 1, {&w.linear}, Activations::kF32);
    s.ops.project(in, {.w = &w.linear, .y = y, .f = layer.nonlinearity, .as = Activations::kF32}, 1);
    if (layer.tanh) s.ops.tanh(y, 1);
    if (layer.norm) s.ops.normalize(y, view(layer.norm, w.norm), {y}, 1);
    x = y;
  }
  s.ops.finish();
  HostCopy copy;
  std::ranges::copy(view_floats(s.backend, x.data, out.size(), copy), out.begin());
}

const DecoderLimits& Decoder::limits() const { return state_->limits; }
size_t Decoder::memory_bytes(const ModelConfig& config, const DecoderLimits& limits) {
  return Workspace::memory_bytes(config, limits) +
         State::most_spans(limits) * (sizeof(AttentionSpan) + sizeof(StateSpan) + sizeof(RotationSpan));
}

}  // namespace quire
