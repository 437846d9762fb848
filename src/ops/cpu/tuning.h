// Which loop of a kernel set is the fastest for each kind of linear on this machine. Results never depend on it: all
// loops give the same bits.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/packed.h"
#include "kernels/types.h"

namespace quire {

struct Compute;
struct KernelSet;  // kernels/kernels.h

// Linears that take the same loop: of the same format and inputs, and of similarly many rows.
struct LinearKind {
  Codes codes;
  ScaleKind scale;
  ZeroKind zeros;
  int group;
  Activations inputs;
  int cols;
  int rows;  // 1, 2, 4, .. kMostTunedRows, rounded up

  auto operator<=>(const LinearKind&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 misreads <=>
};
inline constexpr int kMostTunedRows = 64;  // more rows are processed as so many at a time
LinearKind linear_kind(const PackedMatrix& weights, Activations inputs, int rows);
// The kernel set's loops for a kind, which `weights` has. The first is the one that is used unless another is chosen.
std::vector<LinearLoop> loops_of(const KernelSet& kernels, const PackedMatrix& weights, const LinearKind& kind);
std::string name(const LinearKind& kind);  // "u4 f16/32, int8 inputs, 2048 cols, 8 rows"
std::string name(const LinearLoop& loop);  // "stream 2 panels, 8192 B ahead"

// The loops that were chosen. Kinds without a choice take the kernel set's own.
class Tuning {
 public:
  const LinearLoop* loop(const PackedMatrix& weights, Activations inputs, int rows) const;  // nullptr: no choice
  const LinearLoop* loop(const LinearKind& kind) const;
  void choose(const LinearKind& kind, const LinearLoop& loop);

 private:
  std::vector<std::pair<LinearKind, LinearLoop>> chosen_;  // ascending
};

// Inputs for measurements. Every 128th is large: with kInt8x2 about as many are outliers as of a model's normalized inputs,
// and in rows of most widths they are the same ones.
std::vector<float> sample_inputs(size_t count);

// A matrix of a model that linears multiply with.
struct TunedMatrix {
  const PackedMatrix* weights;
  Activations inputs;
};

struct MeasuredLoop {
  LinearLoop loop;
  double rate = 0;  // multiply-adds per second: what a quarter of the samples exceed
  int samples = 0;
};
struct MeasuredKind {
  LinearKind kind;
  double bytes = 0;                 // weights read for each multiply-add of one row
  std::vector<MeasuredLoop> loops;  // the kernel set's own first
  size_t best = 0;                  // another than the first only if it is clearly faster
};

// Multiplies with the matrices in order, again and again, as a model does, so that weights come from memory or a cache
// as they do in a step; the loops of a kind take turns in random order. Measures kinds that `wanted` accepts and that have several
// loops. Takes about `seconds`, or until each loop has a few samples. report(done, total): may be empty.
std::vector<MeasuredKind> measure_loops(const Compute& compute, std::span<const TunedMatrix> matrices,
                                        const std::function<bool(const LinearKind&)>& wanted, double seconds,
                                        const std::function<void(size_t, size_t)>& report);

}  // namespace quire
