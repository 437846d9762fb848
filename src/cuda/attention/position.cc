#include "cuda/attention/position.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <vector>

#include "cuda/attention/kv_pages.h"
#include "cuda/kernels/position.h"
#include "cuda/kernels/rotations.h"
#include "cuda/ranks/rank_gather.h"
#include "kernels/kernels.h"

namespace quire::cuda {
namespace {

int blocks_of(int items, int a_block) { return (items + a_block - 1) / a_block; }

RunNorm run_norm(const HeadNorm& norm) {
  return {.weight = Global<const float>(norm.norm.weight),
          .bias = Global<const float>(norm.norm.bias),
          .weight_stride = norm.weight_stride,
          .epsilon = norm.norm.epsilon,
          .kind = norm.norm.kind};
}

// Queries, keys or values, and whether the kernel of heads normalizes them.
struct Part {
  Rows x;
  int dim;
  HeadNorm norm;

  int heads() const { return x.cols / dim; }
  bool has_norm() const { return x.cols > 0 && norm.norm.kind != NormKind::kNone; }
  bool by_head() const { return norm.groups == heads(); }
  // own: the heads that are wanted.
  PositionHeads::Vectors vectors(Share own) const {
    if (x.cols == 0) own = {0, 0};
    RunNorm run = run_norm(some_heads(norm, own.begin, own.size()));
    if (!has_norm() || !by_head()) run.kind = NormKind::kNone;
    return {.data = Global<float>(x.data + ptrdiff_t{own.begin} * dim),
            .stride = x.stride,
            .heads = own.size(),
            .dim = dim,
            .norm = run};
  }
};

void normalize_runs(Stream& stream, const Part& part, int rows) {
  if (!part.has_norm() || part.by_head()) return;
  const int runs = part.norm.groups;
  stream.launch({.x = blocks_of(rows * runs, NormalizeRuns::kThreads / 32), .threads = NormalizeRuns::kThreads},
                NormalizeRuns{.x = Global<float>(part.x.data),
                              .stride = part.x.stride,
                              .rows = rows,
                              .runs = runs,
                              .size = part.x.cols / runs,
                              .norm = run_norm(part.norm)});
}

// Rows one by one, or by pages if their tokens must be stored in order.
const PageRunList& page_runs(Stream& stream, AttentionLists& lists, std::span<const AttentionSpan> spans,
                             bool in_order) {
  const AttentionLists::FoundRuns found = lists.runs(stream, spans, in_order);
  PageRunList& list = found.list;
  if (found.known) return list;
  for (const AttentionSpan& span : spans) {
    for (int i = 0; i < span.rows;) {
      const int position = span.position + i, slot = position % kPageTokens;
      const int count = in_order ? std::min(span.rows - i, kPageTokens - slot) : 1;
      list.runs.push_back(
          {.row = span.row + i, .rows = count, .page = span.pages[position / kPageTokens], .slot = slot});
      i += count;
    }
  }
  list.placed = Global<const PageRun>(stream.place(std::span<const PageRun>(list.runs)));
  return list;
}

}  // namespace

void rotations(Stream& stream, std::span<const RotationSpan> spans, const Rows& to) {
  std::vector<RotationRow> rows;
  std::vector<float> frequencies;
  std::vector<const RopeTable*> tables;
  for (const RotationSpan& span : spans) {
    const auto found = std::find(tables.begin(), tables.end(), span.table);
    const auto index = static_cast<size_t>(found - tables.begin()), pairs = span.table->frequencies.size();
    assert(tables.empty() || pairs == tables[0]->frequencies.size());
    if (found == tables.end()) {
      tables.push_back(span.table);
      frequencies.insert(frequencies.end(), span.table->frequencies.begin(), span.table->frequencies.end());
    }
    for (int i = 0; i < span.rows; ++i) {
      rows.push_back({.row = span.row + i,
                      .position = span.position + i,
                      .table = static_cast<int>(index * pairs),
                      .amplitude = span.table->amplitude});
    }
  }
  if (rows.empty() || frequencies.empty()) return;
  const auto pairs = static_cast<int>(tables[0]->frequencies.size()), count = static_cast<int>(rows.size());
  stream.launch({.x = blocks_of(count * pairs, Rotations::kThreads), .threads = Rotations::kThreads},
                Rotations{.rows = Global<const RotationRow>(stream.place(std::span<const RotationRow>(rows))),
                          .frequencies = Global<const float>(stream.place(std::span<const float>(frequencies))),
                          .to = Global<float>(to.data),
                          .stride = to.stride,
                          .count = count,
                          .pairs = pairs});
}

void position_and_store(Stream& stream, AttentionLists& lists, const PositionArgs& args,
                        std::span<const AttentionSpan> spans, int rows) {
  const KvPages pages = kv_pages(args.cache, args.layer);
  const Part q{args.q, args.key_dim, args.q_norm}, k{args.k, args.key_dim, args.k_norm},
      v{args.v, args.value_dim, args.v_norm};
  // Heads of this rank: those in its cache, and their queries. Norms of all heads together read all.
  const LayerCache& layer = args.cache.layout().layers()[static_cast<size_t>(args.layer)];
  const bool shares = stream.ranks() && layer.model_kv_heads > 0;
  const Share own_kv{layer.first_kv_head, layer.first_kv_head + layer.kv_heads};
  const Share own_q =
      shares ? head_share(stream.ranks()->number(), layer, {}, args.heads).queries : Share{0, args.heads};
  const auto own_or_all = [&](const Part& part, Share own) {
    const bool joined_later = args.norm_after_rope && part.has_norm() && !part.by_head();
    return shares && !joined_later ? own : Share{0, part.heads()};
  };
  const PageRunList& runs = page_runs(stream, lists, spans, rotates_heads(pages.type));
  const int most_padded = padded_head(std::max(args.key_dim, args.value_dim));
  PositionHeads heads{.q = q.vectors(own_or_all(q, own_q)),
                      .k = k.vectors(own_or_all(k, own_kv)),
                      .v = v.vectors(own_or_all(v, own_kv)),
                      .pages = pages,
                      .turn_key = head_turn(args.key_dim),
                      .turn_value = head_turn(args.value_dim),
                      .runs = runs.placed,
                      .cos_sin = Global<const float>(args.cos_sin.data),
                      .q_scales = Global<const float>(args.q_scales),
                      .cos_sin_stride = args.cos_sin.stride,
                      .clip = args.clip,
                      .rope_dim = args.kind == RopeKind::kNone ? 0 : args.rope_dim,
                      .rope_offset = args.rope_offset,
                      .kind = args.kind,
                      .norm_after_rope = args.norm_after_rope,
                      .positions = true,
                      .stores = true,
                      .most_padded = most_padded};
  const auto launch = [&] {
    const int units = heads.q.heads + heads.k.heads + heads.v.heads;
    stream.launch({.x = static_cast<int>(runs.runs.size()),
                   .y = blocks_of(units, PositionHeads::kWarps),
                   .threads = PositionHeads::kThreads,
                   .shared_bytes = PositionHeads::kWarps * PositionHeads::kNumberBytes * most_padded},
                  heads);
  };
  // Norms of other runs than heads are launches of their own. If they come between rotation and cache, heads are launched twice.
  normalize_runs(stream, v, rows);
  if (!args.norm_after_rope) {
    normalize_runs(stream, q, rows);
    normalize_runs(stream, k, rows);
    launch();
    return;
  }
  if (!k.has_norm() || k.by_head()) {
    launch();
    normalize_runs(stream, q, rows);
    return;
  }
  heads.stores = false;
  launch();
  normalize_runs(stream, q, rows);
  normalize_runs(stream, k, rows);
  heads.positions = false;
  heads.stores = true;
  heads.q.heads = 0;
  if (shares) heads.k = k.vectors(own_kv);
  launch();
}

}  // namespace quire::cuda
