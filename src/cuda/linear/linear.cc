#include "cuda/linear/linear.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/half.h"
#include "cuda/linear/linear_int8.h"
#include "cuda/linear/linear_launch.h"
#include "cuda/linear/linear_many_rows.h"
#include "cuda/ranks/rank_gather.h"

namespace quire::cuda {
namespace {

// The entries of a table as sums of bf16 numbers: for each term their low bytes, then their high ones. Of integers also as int8.
CodeTables code_tables(const std::array<float, 16>& table, bool integers) {
  CodeTables tables{};
  for (size_t n = 0; n < table.size(); ++n) {
    float rest = table[n];
    for (size_t term = 0; term < kTableTerms; ++term) {
      const uint32_t bits = f32_to_bf16(rest);
      rest -= bf16_to_f32(static_cast<uint16_t>(bits));
      const size_t word = term * kTableWords + n / 4, shift = 8 * (n % 4);
      tables.words[word] |= (bits & 0xFF) << shift;
      tables.words[word + 4] |= (bits >> 8) << shift;
    }
    if (!integers) continue;
    const auto code = static_cast<uint8_t>(static_cast<int8_t>(table[n]));
    tables.words[kTableTerms * kTableWords + n / 4] |= uint32_t{code} << (8 * (n % 4));
  }
  return tables;
}

Finish finish_of(const Projection& p) {
  return {.bias = p.w->bias.data(),
          .up_bias = p.up ? p.up->bias.data() : nullptr,
          .alpha = p.alpha,
          .limit = p.limit,
          .scale = p.scale,
          .f = p.f,
          .accumulate = p.accumulate};
}

// LinearMatrix::fours of targets that begin so many columns apart.
int32_t in_fours(const Rows& y, int step) {
  return reinterpret_cast<uintptr_t>(y.data) % 16 == 0 && y.stride % 4 == 0 && step % 4 == 0 ? 1 : 0;
}

const uint8_t* panels_at(const PackedMatrix& m) { return reinterpret_cast<const uint8_t*>(m.data); }

// `together`: whether `up` is multiplied in the same pass.
LinearMatrix linear_matrix(Stream& stream, const Projection& p, bool together) {
  return {.w = weight_shape(stream, p.w->weight),
          .data = panels_at(p.w->weight),
          .up = together ? panels_at(p.up->weight) : nullptr,
          .finish = finish_of(p),
          .y = p.y.data,
          .y_stride = static_cast<int32_t>(p.y.stride),
          .fours = in_fours(p.y, 0)};
}

// The outputs of some panels, as a matrix of its own.
LinearMatrix some_panels(LinearMatrix m, Share panels) {
  const ptrdiff_t first = ptrdiff_t{panels.begin} * kPanel, skipped = ptrdiff_t{panels.begin} * m.w.panel_bytes;
  m.w.rows = std::min(panels.end * kPanel, m.w.rows) - panels.begin * kPanel;
  m.data += skipped;
  if (m.up != nullptr) m.up += skipped;
  if (m.finish.bias != nullptr) m.finish.bias += first;
  if (m.finish.up_bias != nullptr) m.finish.up_bias += first;
  m.y += first;
  return m;
}

void launch_codes(Stream& stream, Codes codes, const LinearLaunch& l) {
  if (multiply_unit(l.form) == Activations::kInt8) return launch_int8(stream, codes, l);
  with_codes(codes, [&]<Codes kCodes>() { launch_linear<kCodes>(stream, l); });
}

PreparedRows prepared_rows(const Inputs::Entry& entry) {
  return {reinterpret_cast<const uint8_t*>(entry.data), static_cast<int32_t>(entry.stride)};
}

// Of one matrix; rows are not known yet.
LaunchKind launch_kind(const PackedMatrix& w, Activations inputs) {
  return {.codes = w.format.codes,
          .form = {},
          .halves = w.format.group == kBlockInputs / 2,
          .minima = has_minima(w.format),
          .gated = false,
          .inputs = inputs,
          .panels = 0,
          .blocks = w.blocks(),
          .rows = 0};
}

// Matrices that one launch multiplies: of one LinearFormat and ScaleForm, with the same inputs, all gated or none.
struct Together {
  LaunchKind kind;  // its panels and rows are not known yet
  ScaleKind scale;
  const std::byte* x;
  bool many;
  bool operator==(const Together&) const = default;
};

}  // namespace

WeightShape weight_shape(Stream& stream, const PackedMatrix& m) {
  const PanelFormat& f = m.format;
  const PanelLayout& at = m.layout;
  assert(at.supers == 0 && at.bytes < (size_t{1} << 31));
  const int group_blocks = std::max(1, f.group / kBlockInputs);
  const bool power = std::has_single_bit(static_cast<unsigned>(group_blocks));
  const uint32_t zero = 0x4300u + static_cast<uint32_t>(f.zero);
  WeightShape w{.panel_bytes = static_cast<int32_t>(at.bytes),
                .super_minima = static_cast<int32_t>(at.super_minima),
                .scales = static_cast<int32_t>(at.scales),
                .minima = static_cast<int32_t>(at.minima),
                .codes = static_cast<int32_t>(at.codes),
                .rows = m.rows,
                .blocks = m.blocks(),
                .group_blocks = group_blocks,
                .factor = m.factor,
                .zero = zero | zero << 16,
                .tables = nullptr,
                .scale = f.scale,
                .zeros = f.zeros,
                .halves = f.group == kBlockInputs / 2,
                .group_shift = static_cast<int8_t>(power ? std::countr_zero(static_cast<unsigned>(group_blocks)) : -1)};
  if (f.codes == Codes::kTable4 || f.codes == Codes::kFloat4) {
    const CodeTables tables = code_tables(f.table, f.codes == Codes::kTable4);
    w.tables = stream.place(std::span<const CodeTables>(&tables, 1))->words;
  }
  return w;
}

void project(Stream& stream, const Inputs& x, std::span<const Projection> list, int rows, Activations mode,
             LinearVariant variant, LateInputs* late) {
  if (rows == 0) return;
  LinearWork work{};
  int matrices = 0;
  std::optional<Together> now;
  const auto run = [&] {
    if (matrices == 0) return;
    LaunchKind kind = now->kind;
    work.count = matrices;
    work.gated = kind.gated ? 1 : 0;
    work.rows = rows;
    kind.panels = panel_tiles(work, 1);
    kind.rows = static_cast<int>(std::bit_ceil(static_cast<unsigned>(rows)));
    LinearLaunch launch{.work = work, .form = kind.inputs, .usual_rows = rows, .parts = 1, .variant = variant};
    if (variant == LinearVariant{} && stream.variants()) launch.variant = stream.variants()->find(kind);
    if (late && address_of(work.x.data) == late->to.data) {
      if (launch.variant.prepares) {
        launch.late = late;
      } else {
        late->launch(stream);
      }
    }
    if (now->many) {
      launch_many_rows(stream, kind.codes, launch);
    } else {
      launch_codes(stream, kind.codes, launch);
    }
    matrices = 0;
    work = {};
  };
  const auto form_of = [&](const Projection& p) { return p.as.value_or(input_form(mode, *p.w)); };
  const auto kind_of = [&](const Projection& p, bool gated) {
    LaunchKind kind = launch_kind(p.w->weight, form_of(p));
    kind.gated = gated;
    return kind;
  };
  const auto many = [&](const LaunchKind& kind) {
    return (variant.kernel == LinearKernel::kUsual || variant.kernel == LinearKernel::kWarpgroups) &&
           takes_many_rows(stream.facts(), kind, rows);
  };
  const auto add = [&](const Projection& p, const LinearMatrix& m) {
    const Inputs::Entry& in = x.of(form_of(p), *p.w);
    LaunchKind kind = kind_of(p, m.up != nullptr);
    kind.form = scale_form(m.w);
    const Together of{.kind = kind, .scale = m.w.scale, .x = in.data, .many = !kind.gated && many(kind)};
    if (matrices == kMatricesTogether || (now && *now != of)) run();
    now = of;
    work.x = prepared_rows(in);
    work.matrices[matrices++] = m;
  };
  RankGather* const ranks = stream.ranks();
  std::array<SharedColumns, kMostTogether> gathered{};
  size_t parts = 0;
  for (const Projection& p : list) {
    PanelShare share{{0, p.w->weight.panels()}, false};
    if (ranks) share = panel_share(ranks->number(), p.w->weight.rows, p.kv_heads);
    if (share.gathered) gathered[parts++] = {p.y.columns(0, p.w->weight.rows), p.w->weight.panels(), kPanel};
    if (share.panels.size() == 0) continue;
    // One pass has one WeightShape for both.
    const bool differ =
        p.up && (p.up->weight.format != p.w->weight.format || p.up->weight.factor != p.w->weight.factor);
    if (differ || (p.up && !p.accumulate && many(kind_of(p, false)))) {
      // One after the other: y = x U^T + c, then y = f(x W^T + b) * y.
      assert(!p.accumulate);
      const Projection up{.w = p.up, .y = p.y, .as = p.as};
      add(up, some_panels(linear_matrix(stream, up, false), share.panels));
      run();
      LinearMatrix m = linear_matrix(stream, p, false);
      m.finish.gates_target = true;
      m.finish.up_bias = nullptr;
      add(p, some_panels(m, share.panels));
      run();
      continue;
    }
    add(p, some_panels(linear_matrix(stream, p, p.up != nullptr), share.panels));
  }
  run();
  if (parts > 0) ranks->gather(stream, std::span(gathered).first(parts), rows);
}

float part_factor(const PackedMatrix& matrix) {
  const ScaleKind scale = matrix.format.scale;
  return scale == ScaleKind::kE4M3 || scale == ScaleKind::kSuper ? matrix.factor : 1;
}

bool takes_many_part_rows(const DeviceFacts& facts, const PackedMatrix& like, Activations form, int usual_rows) {
  return takes_many_rows(facts, launch_kind(like, form), usual_rows);
}

void project_parts(Stream& stream, const PreparedRows& x, Activations form, const PartProjection& p) {
  if (p.most_rows == 0 || p.most_parts == 0) return;
  LinearWork work{};
  LinearMatrix& m = work.matrices[0];
  m.w = weight_shape(stream, p.like);
  m.w.factor = 1;  // parts have their own
  m.finish.f = p.f, m.finish.alpha = p.alpha, m.finish.limit = p.limit, m.finish.gates_target = p.gates_target;
  m.y = p.y.data;
  m.y_stride = static_cast<int32_t>(p.y.stride);
  m.fours = in_fours(p.y, p.parts.y_step);
  work.count = 1;
  work.gated = p.gated ? 1 : 0;
  work.rows = p.most_rows;
  work.x = x;
  work.parts = p.parts;
  const LinearLaunch launch{.work = work, .form = form, .usual_rows = p.usual_rows, .parts = p.most_parts};
  if (!p.gated && takes_many_part_rows(stream.facts(), p.like, form, p.usual_rows))
    return launch_many_rows(stream, p.like.format.codes, launch);
  launch_codes(stream, p.like.format.codes, launch);
}

void project_heads(Stream& stream, InputBuffers& inputs, const HeadProjections& heads, int rows, Activations mode) {
  if (rows == 0) return;
  const InputBuffers::HeadInputs in = inputs.prepare_heads(stream, mode, heads, rows);
  const auto all = static_cast<int>(heads.matrices.size());
  const Share own = stream.ranks() ? stream.ranks()->number().share(all) : Share{0, all};
  std::vector<PartMatrices> parts;
  for (int h = own.begin; h < own.end; ++h) {
    const Linear& w = heads.matrices[static_cast<size_t>(h)];
    parts.push_back({panels_at(w.weight), nullptr, w.bias.data(), nullptr, part_factor(w.weight), 1});
  }
  const Linear& any = heads.matrices[0];
  const Activations form = input_form(mode, any);
  const auto count = own.size();
  PreparedRows x = prepared_rows(in.first.of(form, any));
  x.data += ptrdiff_t{own.begin} * in.padded_rows * x.stride;
  project_parts(stream, x, form,
                {.like = any.weight,
                 .parts = {.matrices = stream.place(std::span<const PartMatrices>(parts)),
                           .count = count,
                           .x_step = in.padded_rows,
                           .y_step = heads.y_step},
                 .most_parts = count,
                 .most_rows = rows,
                 .usual_rows = rows,
                 .y = heads.y.columns(own.begin * heads.y_step, count * heads.y_step)});
  if (!stream.ranks()) return;
  const SharedColumns gathered[] = {{heads.y.columns(0, all * heads.y_step), all, heads.y_step}};
  stream.ranks()->gather(stream, gathered, rows);
}

}  // namespace quire::cuda
