#include "cuda/linear/measure_variants.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/cuda_operations.h"
#include "cuda/linear/linear.h"
#include "ops/rows.h"

namespace quire::cuda {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostFloats = size_t{64} << 20;  // of inputs, and of results
// Of the same projections, those of so many layers take turns, so that weights come from memory as they do in a step. From
// kManyRows on it matters little where they come from.
constexpr size_t kMostInTurn = 8;
constexpr int kManyRows = 256;
constexpr int kRounds = 3;
constexpr double kLeastGain = 0.03;

// Projections of several layers that take the same kernels.
using Turns = std::vector<const TunedProjection*>;

auto shape_of(const Linear& w) {
  return std::tuple(w.weight.format, w.weight.rows, w.weight.cols, w.int8_rows, w.transform != nullptr);
}
bool alike(const TunedProjection& a, const TunedProjection& b) {
  if ((a.up == nullptr) != (b.up == nullptr) || (a.up && shape_of(*a.up) != shape_of(*b.up))) return false;
  return std::ranges::equal(a.matrices, b.matrices,
                            [](const Linear* x, const Linear* y) { return shape_of(*x) == shape_of(*y); });
}

std::vector<Turns> in_turns(std::span<const TunedProjection> projections) {
  std::vector<Turns> all;
  for (const TunedProjection& p : projections) {
    const auto same = std::ranges::find_if(all, [&](const Turns& turns) { return alike(*turns[0], p); });
    if (same == all.end()) {
      all.push_back({&p});
    } else if (same->size() < kMostInTurn) {
      same->push_back(&p);
    }
  }
  return all;
}

size_t input_floats(const TunedProjection& p) { return row_stride(p.matrices[0]->weight.cols); }
size_t result_floats(const TunedProjection& p) {
  size_t floats = 0;
  for (const Linear* w : p.matrices) floats += row_stride(w->weight.rows);
  return floats;
}
// As many of `rows` rows as fit.
int most_rows(const TunedProjection& p, int rows) {
  const size_t floats = std::max(input_floats(p), result_floats(p));
  return static_cast<int>(std::min(static_cast<size_t>(rows), kMostFloats / floats));
}

class Measurement {
 public:
  Measurement(Device& device, const std::vector<Turns>& all, Activations activations, int rows)
      : device_(device),
        limits_(limits_of(all, rows)),
        operations_(device, false, activations, limits_, {}, &variants_) {
    size_t inputs = 0, results = 0;
    for (const Turns& turns : all) {
      const auto most = static_cast<size_t>(most_rows(*turns[0], rows));
      inputs = std::max(inputs, most * input_floats(*turns[0]));
      results = std::max(results, most * result_floats(*turns[0]));
    }
    x_ = allocate(inputs);
    y_ = allocate(results);
    std::vector<float> numbers(std::min(inputs, size_t{1} << 20));  // zeros would take less power, and so less time
    std::ranges::generate(numbers, [random = std::minstd_rand()]() mutable {
      return static_cast<float>(random()) / static_cast<float>(std::minstd_rand::max()) - 0.5F;
    });
    for (size_t at = 0; at < inputs; at += numbers.size()) {
      const size_t part = std::min(numbers.size(), inputs - at);
      device.upload(reinterpret_cast<std::byte*>(x_ + at), std::as_bytes(std::span(numbers)).data(),
                    part * sizeof(float));
    }
  }
  ~Measurement() {
    for (std::byte* memory : memory_) device_.free(memory);
  }
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;

  VariantTable& variants() { return variants_; }

  // Seconds that each of them takes.
  double run(const Turns& turns, int rows) {
    const TunedProjection& any = *turns[0];
    const Rows x{x_, any.matrices[0]->weight.cols, input_floats(any)};
    const auto begin = Clock::now();
    for (const TunedProjection* p : turns) {
      const Inputs inputs = operations_.prepare(x, {}, rows, {p->matrices[0]}, {});
      std::vector<Projection> list;
      float* y = y_;
      for (const Linear* w : p->matrices) {
        list.push_back({.w = w,
                        .y = {y, w->weight.rows, row_stride(w->weight.rows)},
                        .up = p->up,
                        .f = p->up ? Nonlinearity::kSilu : Nonlinearity::kNone});
        y += static_cast<size_t>(rows) * row_stride(w->weight.rows);
      }
      operations_.project(inputs, list, rows);
    }
    operations_.finish();
    return std::chrono::duration<double>(Clock::now() - begin).count() / static_cast<double>(turns.size());
  }

 private:
  static OperationLimits limits_of(const std::vector<Turns>& all, int rows) {
    OperationLimits limits;
    limits.max_rows = limits.max_positions = rows;
    for (const Turns& turns : all) {
      const Linear& w = *turns[0]->matrices[0];
      limits.inputs.push_back({most_rows(*turns[0], rows), w.weight.cols});
      limits.forms.int8_rows |= w.int8_rows;
      limits.forms.transforms |= w.transform != nullptr;
    }
    return limits;
  }
  float* allocate(size_t floats) {
    memory_.push_back(device_.allocate(floats * sizeof(float)));
    return reinterpret_cast<float*>(memory_.back());
  }

  Device& device_;
  VariantTable variants_;  // steps of other models do not see what is tried
  const OperationLimits limits_;
  CudaOperations operations_;
  std::vector<std::byte*> memory_;
  float *x_ = nullptr, *y_ = nullptr;
};

// The fastest variant for a kind, of those that the projections need.
LinearVariant fastest(Measurement& on, Turns turns, int rows, const LaunchKind& kind,
                      const std::vector<LinearVariant>& others) {
  if (rows >= kManyRows) turns.resize(1);
  std::vector<LinearVariant> all{LinearVariant{}};
  all.insert(all.end(), others.begin(), others.end());
  std::vector<double> seconds(all.size(), std::numeric_limits<double>::max());
  for (int round = 0; round <= kRounds; ++round) {
    for (size_t i = 0; i < all.size(); ++i) {
      on.variants().choose(kind, all[i]);
      const double time = on.run(turns, rows);
      if (round > 0) seconds[i] = std::min(seconds[i], time);  // the first loads the kernel
    }
  }
  const auto best = static_cast<size_t>(std::ranges::min_element(seconds) - seconds.begin());
  return seconds[best] < (1 - kLeastGain) * seconds[0] ? all[best] : LinearVariant{};
}

}  // namespace

Backend::KernelChoices measure_variants(Device& device, VariantTable& table,
                                        std::span<const TunedProjection> projections, Activations activations, int rows,
                                        const Backend::KernelChoices& known,
                                        const std::function<void(size_t, size_t)>& report) {
  Backend::KernelChoices measured;
  const std::vector<Turns> all = in_turns(projections);
  if (all.empty() || rows < 1) return measured;
  Measurement on(device, all, activations, rows);
  on.variants().note_asked();
  size_t done = 0;
  for (const Turns& turns : all) {
    if (report) report(done++, all.size());
    for (int count = 1; count <= most_rows(*turns[0], rows); count *= 2) {
      on.run({turns[0]}, count);
      for (const LaunchKind& kind : on.variants().take_asked()) {
        const std::vector<LinearVariant> others = variants_of(device.facts(), kind);
        const std::string key = name(kind);
        if (others.empty() || measured.contains(key)) continue;
        LinearVariant chosen;
        if (const auto at = known.find(key); at != known.end()) {
          const auto named = std::ranges::find(others, at->second, [](const LinearVariant& v) { return name(v); });
          if (named != others.end()) chosen = *named;
        } else {
          chosen = fastest(on, turns, count, kind, others);
          measured[key] = name(chosen);
        }
        on.variants().choose(kind, chosen);
        table.choose(kind, chosen);
      }
      on.variants().take_asked();
    }
  }
  if (report) report(all.size(), all.size());
  return measured;
}

}  // namespace quire::cuda
