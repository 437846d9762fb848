#include "ops/cpu/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <map>
#include <numeric>
#include <random>

#include "base/memory.h"
#include "kernels/kernels.h"
#include "kernels/kind_names.h"
#include "ops/cpu/linear.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kScaleNames[] = {"", "f16", "f32", "e8m0", "e4m3", "super"};
constexpr const char* kZeroNames[] = {"", " f16 minima", " super minima", " zeros", " f32 minima"};
constexpr const char* kLoopNames[] = {"stream", "shared", "tiles", "paired"};

// A loop other than the first must be this much faster: less is noise.
constexpr double kClearly = 1.03;
// Samples of each loop, however slow the machine or large the model: the best of three is rarely one that was disturbed.
constexpr size_t kFewestSamples = 3;

// What is measured of a kind, and the samples so far: multiply-adds per second, by loop.
struct Samples {
  std::vector<LinearLoop> loops;
  std::vector<std::vector<double>> rates;
  double bytes = 0;
  // The order of the loops, shuffled for each round: in a fixed order, a loop could meet the same few matrices of each layer again
  // and again, and their sizes matter.
  std::vector<size_t> order;
  size_t turn = 0;
};

double upper_quartile(std::vector<double>& rates) {
  if (rates.empty()) return 0;
  const auto at = rates.begin() + static_cast<ptrdiff_t>(rates.size() * 3 / 4);
  std::nth_element(rates.begin(), at, rates.end());
  return *at;
}

MeasuredKind summary(const LinearKind& kind, Samples& samples) {
  MeasuredKind measured{.kind = kind, .bytes = samples.bytes, .loops = {}};
  for (size_t i = 0; i < samples.loops.size(); ++i) {
    std::vector<double>& rates = samples.rates[i];
    measured.loops.push_back({samples.loops[i], upper_quartile(rates), static_cast<int>(rates.size())});
  }
  const auto best = std::ranges::max_element(measured.loops, {}, &MeasuredLoop::rate);
  if (best->rate > kClearly * measured.loops[0].rate)
    measured.best = static_cast<size_t>(best - measured.loops.begin());
  return measured;
}

// Rows of some numbers, as the linears of every width and input form take them.
class TuningInputs {
 public:
  TuningInputs(const Compute& compute, std::span<const TunedMatrix> matrices) {
    int widest = 0;
    for (const TunedMatrix& m : matrices) widest = std::max(widest, m.weights->cols);
    x_ = sample_inputs(static_cast<size_t>(widest) * kMostTunedRows);
    for (const TunedMatrix& m : matrices) {
      const auto [at, added] = blocks_.try_emplace({m.weights->cols, m.inputs});
      if (!added) continue;
      const size_t stride = input_stride(m);
      at->second = LargeBuffer(stride * padded_rows(kMostTunedRows));
      quantize_rows(compute,
                    {.x = x_.data(),
                     .x_stride = static_cast<size_t>(m.weights->cols),
                     .cols = m.weights->cols,
                     .to = m.inputs,
                     .out = at->second.data(),
                     .out_stride = stride},
                    kMostTunedRows);
    }
  }
  static size_t input_stride(const TunedMatrix& m) {
    return static_cast<size_t>(m.weights->blocks()) * activation_block_bytes(m.inputs);
  }
  const std::byte* of(const TunedMatrix& m) const { return blocks_.at({m.weights->cols, m.inputs}).data(); }

 private:
  std::vector<float> x_;
  std::map<std::pair<int, Activations>, LargeBuffer> blocks_;
};

}  // namespace

LinearKind linear_kind(const PackedMatrix& weights, Activations inputs, int rows) {
  const PanelFormat& f = weights.format;
  const int rounded = static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::clamp(rows, 1, kMostTunedRows))));
  return {f.codes, f.scale, f.zeros, f.group, inputs, weights.cols, rounded};
}

std::vector<LinearLoop> loops_of(const KernelSet& kernels, const PackedMatrix& weights, const LinearKind& kind) {
  std::array<LinearLoop, kMostLinearLoops> loops;
  const size_t count = kernels.linear_loops(weights, kind.inputs, kind.rows, loops);
  return {loops.begin(), loops.begin() + static_cast<ptrdiff_t>(count)};
}

std::vector<float> sample_inputs(size_t count) {
  std::vector<float> x(count);
  for (size_t i = 0; i < count; ++i)
    x[i] = (static_cast<float>(i * 2654435761u % 2003) / 1001.0f - 1) * (i % 128 == 5 ? 20.0f : 1.0f);
  return x;
}

std::string name(const LinearKind& k) {
  std::string weights = kCodesNames[static_cast<size_t>(k.codes)];
  if (k.scale != ScaleKind::kNone)
    weights += fmt::format(" {}/{}{}", kScaleNames[static_cast<size_t>(k.scale)], k.group,
                           kZeroNames[static_cast<size_t>(k.zeros)]);
  return fmt::format("{}, {} inputs, {} cols, {} rows", weights, kInputNames[static_cast<size_t>(k.inputs)], k.cols,
                     k.rows);
}

std::string name(const LinearLoop& loop) {
  std::string text = kLoopNames[static_cast<size_t>(loop.kind)];
  if (loop.panels > 1)
    text += fmt::format(" {} {}", loop.panels, loop.kind == LinearLoop::Kind::kPaired ? "groups" : "panels");
  if (loop.ahead > 0) text += fmt::format(", {} B ahead", loop.ahead);
  return text;
}

const LinearLoop* Tuning::loop(const LinearKind& kind) const {
  const auto at = std::ranges::lower_bound(chosen_, kind, {}, &std::pair<LinearKind, LinearLoop>::first);
  return at != chosen_.end() && at->first == kind ? &at->second : nullptr;
}

const LinearLoop* Tuning::loop(const PackedMatrix& weights, Activations inputs, int rows) const {
  return chosen_.empty() ? nullptr : loop(linear_kind(weights, inputs, rows));
}

void Tuning::choose(const LinearKind& kind, const LinearLoop& loop) {
  const auto at = std::ranges::lower_bound(chosen_, kind, {}, &std::pair<LinearKind, LinearLoop>::first);
  if (at != chosen_.end() && at->first == kind) {
    at->second = loop;
  } else {
    chosen_.insert(at, {kind, loop});
  }
}

std::vector<MeasuredKind> measure_loops(const Compute& compute, std::span<const TunedMatrix> matrices,
                                        const std::function<bool(const LinearKind&)>& wanted, double seconds,
                                        const std::function<void(size_t, size_t)>& report) {
  // The kinds, and for each number of rows the matrices that have a kind to measure.
  std::map<LinearKind, Samples> kinds;
  std::vector<int> row_counts;
  for (int rows = 1; rows <= kMostTunedRows; rows *= 2) {
    for (const TunedMatrix& m : matrices) {
      const LinearKind kind = linear_kind(*m.weights, m.inputs, rows);
      if (!kinds.contains(kind)) {
        if (!wanted(kind)) continue;
        std::vector<LinearLoop> loops = loops_of(compute.kernels, *m.weights, kind);
        if (loops.size() < 2) continue;
        const size_t count = loops.size();
        const double all = static_cast<double>(m.weights->rows) * m.weights->cols;
        std::vector<size_t> order(count);
        std::iota(order.begin(), order.end(), size_t{0});
        kinds[kind] = {.loops = std::move(loops),
                       .rates = std::vector<std::vector<double>>(count),
                       .bytes = static_cast<double>(m.weights->bytes()) / all,
                       .order = std::move(order)};
      }
      if (row_counts.empty() || row_counts.back() != rows) row_counts.push_back(rows);
    }
  }
  if (kinds.empty()) return {};
  const TuningInputs inputs(compute, matrices);
  int widest = 0;
  for (const TunedMatrix& m : matrices) widest = std::max(widest, m.weights->rows);
  LargeBuffer outputs(sizeof(float) * static_cast<size_t>(widest) * kMostTunedRows);
  std::mt19937 random(1);
  for (size_t i = 0; i < row_counts.size(); ++i) {
    const int rows = row_counts[i];
    if (report) report(i, row_counts.size());
    const auto end = Clock::now() + std::chrono::duration<double>(seconds / static_cast<double>(row_counts.size()));
    for (bool done = false; !done;) {
      done = true;  // unless there is a matrix to measure
      for (const TunedMatrix& m : matrices) {
        const auto found = kinds.find(linear_kind(*m.weights, m.inputs, rows));
        if (found == kinds.end()) continue;
        Samples& samples = found->second;
        if (Clock::now() >= end && samples.turn >= kFewestSamples * samples.loops.size()) continue;
        done = false;
        const size_t turn = samples.turn++ % samples.loops.size();
        if (turn == 0) std::ranges::shuffle(samples.order, random);
        const size_t loop = samples.order[turn];
        LinearArgs args{.weights = m.weights,
                        .activations = m.inputs,
                        .x = inputs.of(m),
                        .x_stride = TuningInputs::input_stride(m),
                        .y = reinterpret_cast<float*>(outputs.data()),
                        .y_stride = static_cast<size_t>(m.weights->rows)};
        args.loop = &samples.loops[loop];
        const auto begin = Clock::now();
        linears(compute, {&args, 1}, rows);
        const double took = std::chrono::duration<double>(Clock::now() - begin).count();
        samples.rates[loop].push_back(static_cast<double>(rows) * m.weights->rows * m.weights->cols / took);
      }
    }
  }
  std::vector<MeasuredKind> measured;
  for (auto& [kind, samples] : kinds) measured.push_back(summary(kind, samples));
  return measured;
}

}  // namespace quire
