#include "ops/cpu/linear.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <utility>

#include "kernels/kernels.h"
#include "ops/communicator.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/tuning.h"
#include "ops/input_observer.h"
#include "ops/ranks/shares.h"

namespace quire {
namespace {

constexpr int kRowsPerQuantizeTile = 4;
constexpr size_t kAlignment = 64;  // QuantizeArgs::out
// Tiles per thread: the others can take tiles from a thread that is slowed down.
constexpr int kTilesPerThread = 8;
// Inputs that ranks of one process prepare together. With fewer, waiting twice could cost more than it saves: rounding one takes
// 1.4 ns (int8x2, AVX2, on a Zen 3).
constexpr int64_t kLeastPreparedByRanks = 1 << 16;

size_t input_stride(Activations a, int cols) {
  return static_cast<size_t>((cols + kBlockInputs - 1) / kBlockInputs) * activation_block_bytes(a);
}

// Panels that a tile should consist of whole groups of, if that leaves enough tiles for all threads.
int panels_together(const Compute& compute, int panels) {
  const int together = compute.kernels.linear_panels;
  return panels >= 2 * together * compute.team.size() ? together : 1;
}

// The outliers of kInt8x2, in mean magnitudes of their row. Rounding normalized inputs costs a model most. The inputs of
// output and down projections have more large numbers, and rounding them costs less (docs/performance.md).
constexpr float kNormalizedOutliers = 5, kOtherOutliers = 8;

QuantizeArgs quantize_args(const Rows& x, int cols, const Inputs::Entry& to, const Linear& w, bool normalized) {
  return {.x = x.data,
          .x_stride = x.stride,
          .cols = cols,
          .to = kernel_form(to.form),
          .threshold = w.threshold,
          .outlier_ratio = normalized ? kNormalizedOutliers : kOtherOutliers,
          .to_e4m3 = to.form == Activations::kFp8,
          .out = to.data,
          .out_stride = to.stride};
}

// With the loop that was chosen for as many rows.
void run_linear(const Compute& compute, LinearArgs args, int panel_begin, int panel_end, int row_begin, int row_end) {
  if (compute.tuning && !args.loop)
    args.loop = compute.tuning->loop(*args.weights, args.activations, row_end - row_begin);
  compute.kernels.linear(args, panel_begin, panel_end, row_begin, row_end);
}

LinearArgs linear_args(const Compute& compute, const Inputs& x, const Projection& p) {
  const Inputs::Entry& in = x.of(p.as.value_or(input_form(compute.activations, *p.w)), *p.w);
  return {.weights = &p.w->weight,
          .up = p.up ? &p.up->weight : nullptr,
          .activations = kernel_form(in.form),
          .x = in.data,
          .x_stride = in.stride,
          .y = p.y.data,
          .y_stride = p.y.stride,
          .bias = p.w->bias.data(),
          .up_bias = p.up ? p.up->bias.data() : nullptr,
          .nonlinearity = p.f,
          .alpha = p.alpha,
          .limit = p.limit,
          .scale = p.scale,
          .accumulate = p.accumulate};
}

// The outputs of some panels, as a linear of its own. memory: for the matrices that it names.
LinearArgs some_panels(LinearArgs args, Share panels, std::array<PackedMatrix, 2>& memory) {
  const auto cut = [&](const PackedMatrix& whole, PackedMatrix& part) {
    part = whole;
    part.data = whole.panel(panels.begin);
    part.rows = std::min(panels.end * kPanel, whole.rows) - panels.begin * kPanel;
    return &part;
  };
  const auto first = static_cast<size_t>(panels.begin) * kPanel;
  args.weights = cut(*args.weights, memory[0]);
  if (args.up) args.up = cut(*args.up, memory[1]);
  args.y += first;
  if (args.bias) args.bias += first;
  if (args.up_bias) args.up_bias += first;
  return args;
}

// project() by ranks.
void project_shared(const Compute& compute, const Inputs& x, std::span<const Projection> projections, int rows) {
  Communicator& ranks = *compute.ranks;
  std::array<LinearArgs, kMostTogether> args;
  std::array<std::array<PackedMatrix, 2>, kMostTogether> matrices;
  std::array<SharedColumns, kMostTogether> gathered{};
  static_assert(kMostTogether <= Communicator::kMostParts);
  size_t count = 0, parts = 0;
  for (const Projection& p : projections) {
    const PanelShare share = panel_share(number_of(ranks), p.w->weight.rows, p.kv_heads);
    if (share.gathered) gathered[parts++] = {p.y.columns(0, p.w->weight.rows), p.w->weight.panels(), kPanel};
    if (share.panels.size() == 0) continue;
    args[count] = some_panels(linear_args(compute, x, p), share.panels, matrices[count]);
    ++count;
  }
  if (count > 0) linears(compute, std::span(args).first(count), rows);
  if (parts > 0) ranks.gather(std::span(gathered).first(parts), rows);
}

// Whether each rank prepares a share of the rows. All ranks decide alike.
bool prepared_by_ranks(const Compute& compute, int rows, int cols) {
  return compute.ranks && compute.ranks->share_memory() && !compute.observer &&
         int64_t{rows} * cols >= kLeastPreparedByRanks;
}

// Shows the inputs of linears: x as it is, or transformed, to memory that is overwritten. Linears that read the same are
// shown together.
void show_inputs(InputObserver& observer, const Rows& x, int rows, std::span<const Linear* const> linears,
                 const Rows& changed) {
  std::vector<const Linear*> rest(linears.begin(), linears.end());
  while (!rest.empty()) {
    const InputTransform* const transform = rest.front()->transform.get();
    const auto others = std::stable_partition(rest.begin(), rest.end(),
                                              [&](const Linear* w) { return w->transform.get() == transform; });
    for (int row = 0; transform && row < rows; ++row) transform_row(*transform, x.row(row), x.cols, changed.row(row));
    observer.see({rest.begin(), others}, transform ? changed : x, rows);
    rest.erase(rest.begin(), others);
  }
}

}  // namespace

InputMemory::Regions InputMemory::regions_of(std::span<const Need> needs, const InputForms& forms) {
  Regions r;
  for (const Need& need : needs) {
    const size_t rows = padded_rows(need.rows);
    r.int8 = std::max(r.int8, rows * input_stride(forms.fp8 ? Activations::kFp8 : Activations::kInt8x2, need.cols));
    r.floats = std::max(r.floats, rows * input_stride(Activations::kF32, need.cols));
    r.int8_rows = std::max(r.int8_rows, rows * input_stride(Activations::kInt8Row, need.cols));
    r.scratch = std::max(r.scratch, rows * row_stride(need.cols) * sizeof(float));
  }
  r.transformed = forms.transforms ? r.floats : 0;  // the largest form
  if (!forms.int8_rows) r.int8_rows = 0;
  return r;
}

size_t InputMemory::bytes(std::span<const Need> needs, const InputForms& forms) {
  const Regions r = regions_of(needs, forms);
  return r.int8 + r.floats + r.int8_rows + r.scratch * (forms.transforms ? 2 : 1) + r.transformed * kMostTransforms;
}

InputMemory::InputMemory(std::byte* memory, std::span<const Need> needs, const InputForms& forms) {
  if (!memory) return;
  const Regions r = regions_of(needs, forms);
  const auto take = [&memory](size_t bytes) { return std::exchange(memory, memory + bytes); };
  int8_ = take(r.int8);
  floats_ = take(r.floats);
  int8_rows_ = take(r.int8_rows);
  normed_ = reinterpret_cast<float*>(take(r.scratch));
  changed_ = reinterpret_cast<float*>(take(forms.transforms ? r.scratch : 0));
  transformed_ = take(r.transformed * kMostTransforms);
  transformed_bytes_ = r.transformed;
}

std::byte* InputMemory::region(Activations form) const {
  // A step has none of int8 if it has rows of E4M3, so these are in its place.
  if (has_int8_blocks(form) || form == Activations::kFp8) return int8_;
  return form == Activations::kInt8Row ? int8_rows_ : floats_;
}

const InputMemory& InputMemory::memory_for(const Compute& compute, bool ranks) const {
  if (ranks) return *static_cast<const InputMemory*>(compute.ranks->borrow(this));
  if (compute.ranks) compute.ranks->take_back();
  return *this;
}

Inputs InputMemory::prepare(const Compute& compute, const Rows& x, const NormView& norm, int rows,
                            std::initializer_list<const Linear*> linears, std::optional<Activations> as) const {
  const bool by_ranks = prepared_by_ranks(compute, rows, x.cols);
  const InputMemory& memory = memory_for(compute, by_ranks);
  const int all_groups = (rows + kRowGroup - 1) / kRowGroup;
  const Share groups = by_ranks ? compute.ranks->share(all_groups) : Share{0, all_groups};
  const int begin = groups.begin * kRowGroup, own_rows = std::min(rows, groups.end * kRowGroup) - begin;
  Inputs inputs;
  Rows from = x.from(begin);
  const bool transformed = std::ranges::any_of(linears, [](const Linear* w) { return w->transform != nullptr; });
  const bool normalized = norm.kind != NormKind::kNone;
  const bool fused = norm.kind == NormKind::kRms && norm.weight && !transformed;
  const Rows normed{normed_, x.cols, row_stride(x.cols)}, changed{changed_, x.cols, row_stride(x.cols)};
  if (normalized && (!fused || compute.observer)) normalize(compute, from, norm, {normed}, own_rows);
  if (normalized && !fused) from = normed;
  if (compute.observer) show_inputs(*compute.observer, fused ? normed : from, rows, linears, changed);
  size_t transforms = 0;
  for (const Linear* w : linears) {
    const Activations form = as.value_or(input_form(compute.activations, *w));
    const InputTransform* const transform = w->transform.get();
    assert(transforms < kMostTransforms || !transform);
    std::byte* const data = transform ? memory.transformed_ + transforms * transformed_bytes_ : memory.region(form);
    const Inputs::Entry* const to = inputs.add({form, transform, data, input_stride(form, x.cols)});
    if (!to) continue;
    QuantizeArgs args = quantize_args(transform ? changed : from, x.cols, *to, *w, normalized);
    args.out += static_cast<size_t>(begin) * to->stride;
    if (!transform) {
      args.norm_weight = fused ? norm.weight : nullptr;
      args.epsilon = norm.epsilon;
      quantize_rows(compute, args, own_rows);
      continue;
    }
    ++transforms;
    compute.team.for_tiles((own_rows + kRowGroup - 1) / kRowGroup, [&](int tile, int) {
      const int first = tile * kRowGroup, end = std::min(own_rows, first + kRowGroup);
      for (int row = first; row < end; ++row) transform_row(*transform, from.row(row), x.cols, changed.row(row));
      compute.kernels.quantize(args, first, end);
    });
  }
  if (by_ranks) compute.ranks->publish();
  return inputs;
}

Inputs InputMemory::prepare_gathered(const Compute& compute, const Rows& x, std::span<const int32_t> sources,
                                     bool gathered, const std::function<const Linear&(int row)>& linear_of) const {
  Inputs inputs;
  if (sources.empty()) return inputs;
  const Linear& any = linear_of(0);
  const Activations form = input_form(compute.activations, any);
  std::byte* const data = memory_for(compute, false).region(form);
  const Inputs::Entry to = *inputs.add({form, nullptr, data, input_stride(form, x.cols)});
  const Rows from = gathered ? x : Rows{normed_, x.cols, row_stride(x.cols)};
  const bool normalized = !gathered;  // gathered rows are the inputs of down projections
  // Tiles of whole groups: rows of one group may share cache lines.
  const auto rows = static_cast<int>(sources.size());
  compute.team.for_tiles((rows + kRowGroup - 1) / kRowGroup, [&](int tile, int) {
    const int begin = tile * kRowGroup;
    const Linear& w = linear_of(begin);
    const Rows changed = w.transform ? Rows{changed_, x.cols, row_stride(x.cols)} : from;
    const QuantizeArgs args = quantize_args(changed, x.cols, to, w, normalized);
    for (int row = begin; row < std::min(rows, begin + kRowGroup); ++row) {
      const int32_t source = sources[static_cast<size_t>(row)];
      if (source < 0) continue;
      const float* row_of_x = x.row(gathered ? row : source);
      if (w.transform) {
        transform_row(*w.transform, row_of_x, x.cols, changed.row(row));
      } else if (!gathered) {
        std::memcpy(from.row(row), row_of_x, sizeof(float) * static_cast<size_t>(x.cols));
      }
      compute.kernels.quantize(args, row, row + 1);
    }
  });
  // Each linear's rows follow each other.
  for (int begin = 0; compute.observer && begin < rows;) {
    const Linear* const w = &linear_of(begin);
    int end = begin, shown = 0;
    for (; end < rows && (end % kRowGroup != 0 || &linear_of(end) == w); ++end) {
      if (sources[static_cast<size_t>(end)] >= 0) ++shown;
    }
    const Rows seen = w->transform ? Rows{changed_, x.cols, row_stride(x.cols)} : from;
    if (shown > 0) compute.observer->see({&w, 1}, {seen.row(begin), seen.cols, seen.stride}, shown);
    begin = end;
  }
  return inputs;
}

InputMemory::HeadInputs InputMemory::prepare_heads(const Compute& compute, const HeadProjections& all, int rows) const {
  const auto heads = static_cast<int>(all.matrices.size());
  const Linear& any = all.matrices[0];
  const Rows& x = all.x;
  const int cols = any.weight.cols;
  HeadInputs inputs{{}, head_rows(1, rows)};
  const auto columns_of = [&](int head) { return x.columns(head * all.x_step, cols); };
  const auto changed_of = [&](int head) -> Rows {
    return {changed_ + static_cast<size_t>(head * inputs.padded_rows) * row_stride(cols), cols, row_stride(cols)};
  };
  const Activations form = input_form(compute.activations, any);
  std::byte* const data = memory_for(compute, false).region(form);
  const Inputs::Entry to = *inputs.first.add({form, nullptr, data, input_stride(form, cols)});
  const int row_tiles = (rows + kRowGroup - 1) / kRowGroup;
  compute.team.for_tiles(heads * row_tiles, [&](int tile, int) {
    const int head = tile / row_tiles, row = tile % row_tiles * kRowGroup;
    Inputs::Entry of_head = to;
    of_head.data += static_cast<size_t>(head) * static_cast<size_t>(inputs.padded_rows) * to.stride;
    const int end = std::min(rows, row + kRowGroup);
    Rows columns = columns_of(head);
    if (any.transform) {
      const Rows changed = changed_of(head);
      for (int r = row; r < end; ++r) transform_row(*any.transform, columns.row(r), cols, changed.row(r));
      columns = changed;
    }
    compute.kernels.quantize(quantize_args(columns, cols, of_head, any, false), row, end);
  });
  for (int head = 0; compute.observer && head < heads; ++head) {
    const Linear* const w = &all.matrices[static_cast<size_t>(head)];
    compute.observer->see({&w, 1}, any.transform ? changed_of(head) : columns_of(head), rows);
  }
  return inputs;
}

Inputs InputMemory::prepare_low_rank(const Compute& compute, const Rows& low, int rows, const LowRank& change,
                                     size_t& taken) const {
  constexpr Activations kForm = Activations::kF32;
  Inputs inputs;
  const size_t stride = input_stride(kForm, change.up.weight.cols);
  std::byte* const data = memory_for(compute, false).region(kForm) + taken;
  const Inputs::Entry& to = *inputs.add({kForm, nullptr, data, stride});
  const auto all = static_cast<size_t>(rows) * static_cast<size_t>(change.folds);
  taken += (all * stride + kAlignment - 1) / kAlignment * kAlignment;
  // Few columns: not worth a loop over the team.
  compute.kernels.quantize(quantize_args(low, change.rank(), to, change.up, false), 0, rows);
  const int columns = kBlockInputs / change.folds;
  for (int fold = 1; fold < change.folds; ++fold) {
    for (int row = 0; row < rows; ++row) {
      auto& block = reinterpret_cast<FloatBlock*>(to.data + static_cast<size_t>(fold * rows + row) * stride)[0];
      block = FloatBlock{};  // what float weights do not read may be anything
      std::copy_n(low.row(row), change.rank(), block.x + fold * columns);
    }
  }
  return inputs;
}

void quantize_rows(const Compute& compute, const QuantizeArgs& args, int rows) {
  const int shared = args.to == Activations::kBf16 ? compute.kernels.shared_input_rows : 1;
  const int tile_rows = std::max(kRowsPerQuantizeTile, shared);
  compute.team.for_tiles((rows + tile_rows - 1) / tile_rows, [&](int tile, int) {
    compute.kernels.quantize(args, tile * tile_rows, std::min(rows, (tile + 1) * tile_rows));
  });
}

void project(const Compute& compute, const Inputs& x, std::span<const Projection> projections, int rows) {
  assert(projections.size() <= kMostTogether);
  if (compute.ranks) return project_shared(compute, x, projections, rows);
  std::array<LinearArgs, kMostTogether> args;
  std::ranges::transform(projections, args.begin(), [&](const Projection& p) { return linear_args(compute, x, p); });
  linears(compute, std::span(args).first(projections.size()), rows);
}

void linears(const Compute& compute, std::span<const LinearArgs> list, int rows) {
  int panels = 0;
  for (const LinearArgs& args : list) panels += args.weights->panels();
  const int group = panels_together(compute, panels);
  const auto groups_of = [group](const LinearArgs& args) { return (args.weights->panels() + group - 1) / group; };
  int groups = 0;
  for (const LinearArgs& args : list) groups += groups_of(args);
  const int wanted = compute.team.size() * kTilesPerThread;
  const int tile_rows = compute.kernels.linear_rows, row_tiles = (rows + tile_rows - 1) / tile_rows;
  const int group_tiles = std::clamp(wanted, 1, groups);
  compute.team.for_tiles(row_tiles * group_tiles, [&](int tile, int) {
    const int row_begin = tile / group_tiles * tile_rows, row_end = std::min(rows, row_begin + tile_rows);
    int begin = static_cast<int>(int64_t{groups} * (tile % group_tiles) / group_tiles);
    int end = static_cast<int>(int64_t{groups} * (tile % group_tiles + 1) / group_tiles);
    for (const LinearArgs& args : list) {  // the tile's panels, matrix by matrix
      const int count = groups_of(args);
      if (begin < count && end > 0) {
        run_linear(compute, args, std::max(0, begin) * group, std::min(end * group, args.weights->panels()), row_begin,
                   row_end);
      }
      begin -= count;
      end -= count;
    }
  });
}

void project_parts(const Compute& compute, ProjectionParts& of_rows, bool shared) {
  const std::vector<ProjectionPart>& parts = of_rows.parts;
  std::vector<LinearTile>& tiles = of_rows.tiles;
  int panels = 0;
  for (const ProjectionPart& part : parts) panels += part.projection.w->weight.panels();
  const int group = panels_together(compute, panels), tile_rows = compute.kernels.linear_rows;
  // Tiles of whole groups, as many panels as give every thread its share of the decoding work.
  const int share = std::max(1, panels / (compute.team.size() * kTilesPerThread)),
            tile_panels = (share + group - 1) / group * group;
  tiles.clear();
  for (size_t i = 0; i < parts.size(); ++i) {
    const ProjectionPart& part = parts[i];
    const int all = part.projection.w->weight.panels();
    const Share of_part = shared && compute.ranks ? compute.ranks->share(all) : Share{0, all};
    for (int row = part.row_begin; row < part.row_end; row += tile_rows) {
      for (int p = of_part.begin; p < of_part.end; p += tile_panels) {
        tiles.push_back({static_cast<int>(i), p, std::min(p + tile_panels, of_part.end), row,
                         std::min(part.row_end, row + tile_rows)});
      }
    }
  }
  compute.team.for_tiles(static_cast<int>(tiles.size()), [&](int i, int) {
    const LinearTile& t = tiles[static_cast<size_t>(i)];
    const ProjectionPart& part = parts[static_cast<size_t>(t.part)];
    run_linear(compute, linear_args(compute, part.x, part.projection), t.panel_begin, t.panel_end, t.row_begin,
               t.row_end);
  });
}

void project_heads(const Compute& compute, const InputMemory& inputs, ProjectionParts& parts,
                   const HeadProjections& heads, int rows) {
  const InputMemory::HeadInputs in = inputs.prepare_heads(compute, heads, rows);
  parts.parts.clear();
  const auto count = static_cast<int>(heads.matrices.size());
  const Share own = compute.ranks ? compute.ranks->share(count) : Share{0, count};
  for (int h = own.begin; h < own.end; ++h) {
    const Linear& w = heads.matrices[static_cast<size_t>(h)];
    const Projection of_head{.w = &w, .y = heads.y.columns(h * heads.y_step, w.weight.rows)};
    parts.parts.push_back({in.at(h), of_head, 0, rows});
  }
  project_parts(compute, parts);
  if (!compute.ranks) return;
  const SharedColumns gathered[] = {{heads.y.columns(0, count * heads.y_step), count, heads.y_step}};
  compute.ranks->gather(gathered, rows);
}

}  // namespace quire
