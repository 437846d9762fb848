#include "cuda/linear/measure_variants.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
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
constexpr size_t kCompared = size_t{1} << 18;  // the first and the last floats of the results

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

// Memory of the device.
class Room {
 public:
  Room(Device& device, size_t floats)
      : device_(device), at_(reinterpret_cast<float*>(device.allocate(floats * sizeof(float)))) {}
  ~Room() { device_.free(reinterpret_cast<std::byte*>(at_)); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  float* floats() const { return at_; }
  std::byte* bytes(size_t first) const { return reinterpret_cast<std::byte*>(at_ + first); }

 private:
  Device& device_;
  float* const at_;
};

class Measurement {
 public:
  Measurement(Device& device, const std::vector<Turns>& all, Activations activations, int rows)
      : device_(device),
        limits_(limits_of(all, rows)),
        operations_(device, false, activations, limits_, {}, &variants_),
        x_(device, most_floats(all, rows, input_floats)),
        y_(device, most_floats(all, rows, result_floats)) {
    const size_t inputs = most_floats(all, rows, input_floats);
    std::vector<float> numbers(std::min(inputs, size_t{1} << 20));  // zeros would take less power, and so less time
    std::ranges::generate(numbers, [random = std::minstd_rand()]() mutable {
      return static_cast<float>(random()) / static_cast<float>(std::minstd_rand::max()) - 0.5F;
    });
    for (size_t at = 0; at < inputs; at += numbers.size()) {
      const size_t part = std::min(numbers.size(), inputs - at);
      device.upload(x_.bytes(at), std::as_bytes(std::span(numbers)).data(), part * sizeof(float));
    }
  }

  VariantTable& variants() { return variants_; }

  // Seconds that each of them takes.
  double run(const Turns& turns, int rows) {
    const TunedProjection& any = *turns[0];
    const Rows x{x_.floats(), any.matrices[0]->weight.cols, input_floats(any)};
    const auto begin = Clock::now();
    for (const TunedProjection* p : turns) {
      const Inputs inputs = operations_.prepare(x, {}, rows, {p->matrices[0]}, {});
      std::vector<Projection> list;
      float* y = y_.floats();
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

  // The first and the last results of a projection.
  std::vector<std::byte> results(const TunedProjection& p, int rows) {
    const size_t all = static_cast<size_t>(rows) * result_floats(p), part = std::min(all, kCompared);
    const size_t bytes = part * sizeof(float);
    std::vector<std::byte> both(2 * bytes, std::byte{0xFF});  // what no kernel writes
    device_.upload(y_.bytes(0), both.data(), bytes);
    device_.upload(y_.bytes(all - part), both.data(), bytes);
    run({&p}, rows);
    device_.download(both.data(), y_.bytes(0), bytes);
    device_.download(both.data() + bytes, y_.bytes(all - part), bytes);
    return both;
  }

 private:
  static size_t most_floats(const std::vector<Turns>& all, int rows, size_t (*of)(const TunedProjection&)) {
    size_t most = 0;
    for (const Turns& turns : all)
      most = std::max(most, static_cast<size_t>(most_rows(*turns[0], rows)) * of(*turns[0]));
    return most;
  }
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

  Device& device_;
  VariantTable variants_;  // of its own: other models' steps go on with the kernels that they have
  const OperationLimits limits_;
  CudaOperations operations_;
  const Room x_, y_;
};

// The fastest variant for a kind that the projections need. Variants whose results have other bits than the usual one's are left out,
// and named in `wrong`.
LinearVariant fastest(Measurement& on, Turns turns, int rows, const LaunchKind& kind,
                      const std::vector<LinearVariant>& others, std::string& wrong) {
  if (rows >= kManyRows) turns.resize(1);
  on.variants().choose(kind, {});
  const std::vector<std::byte> expected = on.results(*turns[0], rows);
  std::vector<LinearVariant> all{LinearVariant{}};
  for (const LinearVariant& variant : others) {
    on.variants().choose(kind, variant);
    if (on.results(*turns[0], rows) == expected) {
      all.push_back(variant);
    } else {
      wrong += "; wrong: " + name(variant);
    }
  }
  std::vector<double> seconds(all.size(), std::numeric_limits<double>::max());
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < all.size(); ++i) {
      on.variants().choose(kind, all[i]);
      seconds[i] = std::min(seconds[i], on.run(turns, rows));
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
          const std::string of = at->second.substr(0, at->second.find(';'));
          const auto named = std::ranges::find(others, of, [](const LinearVariant& v) { return name(v); });
          if (named != others.end()) chosen = *named;
        } else {
          std::string wrong;
          chosen = fastest(on, turns, count, kind, others, wrong);
          measured[key] = name(chosen) + wrong;
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
