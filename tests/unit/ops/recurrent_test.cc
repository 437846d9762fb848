// Recurrent layers: neither the cut of a prompt into steps, nor the threads, nor other sequences change a bit.
#include "ops/cpu/recurrent.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "base/team.h"
#include "kernels/kernels.h"
#include "ops/cpu/cpu_backend.h"

namespace quire {
namespace {

using Vector = std::vector<float>;

Vector random_floats(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Vector x(count);
  for (float& value : x) value = normal(random);
  return x;
}

bool equal_bits(const Vector& a, const Vector& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

constexpr int kRows = 23, kSlots = 6;

// A layer with random weights, over rows of `cols` numbers.
struct Layer {
  const char* name;
  StateLayout layout;
  int cols;
  std::function<void(const Compute&, const LayerStates&, const Rows&, std::span<const StateSpan>, int rows)> run;
};

Layer convolution() {
  const StateLayout layout{.channels = 300, .width = 4};
  return {"convolution", layout, 300,
          [weight = random_floats(1200, 1), bias = random_floats(300, 2)](
              const Compute& compute, const LayerStates& states, const Rows& x, std::span<const StateSpan> spans, int) {
            convolve(compute, states, {.x = x, .weight = weight.data(), .bias = bias.data(), .silu = true}, spans);
          }};
}

constexpr int kKeyHeads = 2, kValueHeads = 6, kKeyDim = 20, kValueDim = 24;
constexpr int kKeys = kKeyHeads * kKeyDim, kValues = kValueHeads * kValueDim;
constexpr int kDeltaCols = 2 * kKeys + kValues + 2 * kValueHeads;

Layer delta(bool interleaved = false, Vector factor = Vector(kValueHeads, -0.5f), Vector bias = {}) {
  if (bias.empty()) bias = random_floats(kValueHeads, 3);
  const StateLayout layout{.channels = 9,  // the matrices begin behind another part
                           .width = 2,
                           .heads = kValueHeads,
                           .rows = kKeyDim,
                           .cols = kValueDim};
  return {"delta rule", layout, kDeltaCols,
          [=](const Compute& compute, const LayerStates& states, const Rows& x, std::span<const StateSpan> spans,
              int rows) {
            const int v = 2 * kKeys, decay = v + kValues;
            delta_rule(compute, states,
                       {.q = x.columns(0, kKeys),
                        .k = x.columns(kKeys, kKeys),
                        .v = x.columns(v, kValues),
                        .decay = x.columns(decay, kValueHeads),
                        .beta = x.columns(decay + kValueHeads, kValueHeads),
                        .factor = factor.data(),
                        .bias = bias.data(),
                        .key_heads = kKeyHeads,
                        .interleaved = interleaved},
                       spans, rows);
          }};
}

Layer mamba() {
  constexpr int kHeads = 4, kDim = 20, kState = 16, kGroups = 2;
  const StateLayout layout{.channels = 9, .width = 2, .heads = kHeads, .rows = kState, .cols = kDim};
  return {"state space", layout, kHeads * kDim + 2 * kGroups * kState + kHeads,
          [bias = random_floats(kHeads, 4), d = random_floats(kHeads, 5), a = Vector(kHeads, -0.7f)](
              const Compute& compute, const LayerStates& states, const Rows& x, std::span<const StateSpan> spans,
              int rows) {
            const int b = kHeads * kDim, c = b + kGroups * kState;
            state_space(compute, states,
                        {.x = x.columns(0, b),
                         .b = x.columns(b, kGroups * kState),
                         .c = x.columns(c, kGroups * kState),
                         .step = x.columns(c + kGroups * kState, kHeads),
                         .bias = bias.data(),
                         .a = a.data(),
                         .d = d.data(),
                         .groups = kGroups},
                        spans, rows);
          }};
}

std::vector<Layer> layers() { return {convolution(), delta(), delta(true), mamba()}; }

// The states of one layer, and the team that computes it.
struct Machine {
  Team team;
  CpuBackend backend;
  CacheMemory memory;
  Compute compute;
  LayerStates states;

  Machine(const Layer& layer, int threads)
      : team(threads),
        backend(choose_kernels("auto"), team),
        memory(backend,
               {{KvType::kF32, {{.kind = LayerCache::Kind::kState, .state_bytes = layer.layout.bytes()}}}, 0, kSlots}),
        compute{choose_kernels("auto"), team, Activations::kF32},
        states{memory, 0, layer.layout} {
    // What earlier sequences left must not matter.
    for (int slot = 0; slot < kSlots; ++slot)
      std::fill_n(states.inputs(slot), layer.layout.bytes() / sizeof(float), std::numeric_limits<float>::quiet_NaN());
  }
  // The convolution's part if the layer has no heads, else the matrices: what the layer above writes.
  Vector state(int slot) const {
    const StateLayout& l = states.layout;
    const float* begin = l.heads > 0 ? states.matrix(slot, 0) : states.inputs(slot);
    return {begin, begin + (l.heads > 0 ? static_cast<size_t>(l.heads) * l.matrix() : l.inputs())};
  }
};

// The results of `rows` rows of x, from row `first`, which is also the position.
void run_rows(const Layer& layer, Machine& machine, Vector& x, int first, int rows, int slot,
              const std::vector<StateCopy>& copies = {}) {
  const Rows part{x.data() + static_cast<ptrdiff_t>(first) * layer.cols, layer.cols, static_cast<size_t>(layer.cols)};
  const StateSpan span{.row = 0, .rows = rows, .position = first, .slot = slot, .copies = copies};
  layer.run(machine.compute, machine.states, part, {&span, 1}, rows);
}

Vector random_rows(const Layer& layer, unsigned seed) {
  return random_floats(static_cast<size_t>(kRows * layer.cols), seed);
}

TEST(RecurrentLayers, GiveTheSameBitsForAnyCutAndAnyNumberOfThreads) {
  for (const Layer& layer : layers()) {
    Vector expected = random_rows(layer, 7);
    Machine whole(layer, 1);
    run_rows(layer, whole, expected, 0, kRows, 0);
    for (const int threads : {1, 3}) {
      for (const std::vector<int>& cut : std::vector<std::vector<int>>{{kRows}, {1, 21, 1}, {8, 8, 7}, {16, 1, 1, 5}}) {
        Vector x = random_rows(layer, 7);
        Machine machine(layer, threads);
        int first = 0;
        for (const int rows : cut) {
          run_rows(layer, machine, x, first, rows, 2);
          first += rows;
        }
        EXPECT_TRUE(equal_bits(x, expected)) << layer.name << ", threads " << threads;
        EXPECT_TRUE(equal_bits(machine.state(2), whole.state(0))) << layer.name << ", threads " << threads;
      }
    }
  }
}

TEST(RecurrentLayers, CopyTheStateAsItIsAfterARow) {
  for (const Layer& layer : layers()) {
    Vector x = random_rows(layer, 8), plain = x;
    Machine machine(layer, 2), other(layer, 2);
    run_rows(layer, machine, x, 0, 10, 0, {{0, 1}, {6, 2}, {6, 3}, {9, 4}});
    run_rows(layer, machine, x, 10, kRows - 10, 0);
    run_rows(layer, other, plain, 0, kRows, 0);
    EXPECT_TRUE(equal_bits(x, plain)) << layer.name;
    EXPECT_TRUE(equal_bits(machine.state(0), other.state(0))) << layer.name;
    for (const auto& [row, slot] : {std::pair{0, 1}, {6, 2}, {6, 3}, {9, 4}}) {
      Vector start = random_rows(layer, 8);
      Machine fresh(layer, 1);
      run_rows(layer, fresh, start, 0, row + 1, 0);
      EXPECT_TRUE(equal_bits(machine.state(slot), fresh.state(0))) << layer.name << ", row " << row;
    }
  }
}

TEST(RecurrentLayers, ContinueFromACopiedState) {
  for (const Layer& layer : layers()) {
    Vector x = random_rows(layer, 9), again = x;
    Machine machine(layer, 1);
    run_rows(layer, machine, x, 0, kRows, 0, {{11, 1}});
    run_rows(layer, machine, again, 12, kRows - 12, 1);
    const auto tail = [&](const Vector& rows) { return Vector(rows.begin() + 12 * layer.cols, rows.end()); };
    EXPECT_TRUE(equal_bits(tail(x), tail(again))) << layer.name;
  }
}

TEST(RecurrentLayers, KeepSequencesApart) {
  for (const Layer& layer : layers()) {
    Vector first = random_rows(layer, 10), second = random_rows(layer, 11), both;
    both.insert(both.end(), first.begin(), first.end());
    both.insert(both.end(), second.begin(), second.end());
    Machine together(layer, 3), alone(layer, 1);
    const StateSpan spans[] = {{.row = 0, .rows = kRows, .position = 0, .slot = 4, .copies = {}},
                               {.row = kRows, .rows = kRows, .position = 0, .slot = 1, .copies = {}}};
    layer.run(together.compute, together.states, {both.data(), layer.cols, static_cast<size_t>(layer.cols)}, spans,
              2 * kRows);
    run_rows(layer, alone, first, 0, kRows, 0);
    run_rows(layer, alone, second, 0, kRows, 1);
    first.insert(first.end(), second.begin(), second.end());
    EXPECT_TRUE(equal_bits(both, first)) << layer.name;
    EXPECT_TRUE(equal_bits(together.state(4), alone.state(0))) << layer.name;
    EXPECT_TRUE(equal_bits(together.state(1), alone.state(1))) << layer.name;
  }
}

// The heads of llama.cpp's files are those of the original in another order.
TEST(DeltaRule, GivesEachValueHeadItsKeyHeadInBothOrders) {
  constexpr int kShared = kValueHeads / kKeyHeads;
  const auto grouped_head = [](int interleaved) { return interleaved % kKeyHeads * kShared + interleaved / kKeyHeads; };
  const Vector factor = {-0.1f, -0.2f, -0.3f, -0.4f, -0.5f, -0.6f}, bias = random_floats(kValueHeads, 12);
  Vector moved_factor, moved_bias;
  for (int h = 0; h < kValueHeads; ++h) {
    moved_factor.push_back(factor[static_cast<size_t>(grouped_head(h))]);
    moved_bias.push_back(bias[static_cast<size_t>(grouped_head(h))]);
  }
  const Layer grouped = delta(false, factor, bias), interleaved = delta(true, moved_factor, moved_bias);
  const auto move = [&](const Vector& from) {
    Vector to = from;
    for (int row = 0; row < kRows; ++row) {
      const auto copy = [&](int begin, int size) {
        for (int h = 0; h < kValueHeads; ++h)
          std::copy_n(from.begin() + row * kDeltaCols + begin + grouped_head(h) * size, size,
                      to.begin() + row * kDeltaCols + begin + h * size);
      };
      copy(2 * kKeys, kValueDim);
      copy(2 * kKeys + kValues, 1);
      copy(2 * kKeys + kValues + kValueHeads, 1);
    }
    return to;
  };
  Vector x = random_rows(grouped, 13), moved = move(x);
  Machine a(grouped, 1), b(interleaved, 1);
  run_rows(grouped, a, x, 0, kRows, 0);
  run_rows(interleaved, b, moved, 0, kRows, 0);
  EXPECT_TRUE(equal_bits(move(x), moved));
}

// With keys that never repeat a direction and no decay, each key recalls its value.
TEST(DeltaRule, RecallsAValueByItsKey) {
  const Layer layer = delta(false, Vector(kValueHeads, 0.0f));
  Vector x(static_cast<size_t>(kRows * kDeltaCols), 0.0f);
  for (int row = 0; row < kKeyDim; ++row) {
    float* const at = x.data() + row * kDeltaCols;
    for (int head = 0; head < kKeyHeads; ++head) at[kKeys + head * kKeyDim + row] = 3;        // k
    for (int i = 0; i < kValues; ++i) at[2 * kKeys + i] = static_cast<float>(row * 100 + i);  // v
    for (int h = 0; h < kValueHeads; ++h) at[2 * kKeys + kValues + kValueHeads + h] = 100;    // beta: 1
  }
  float* const last = x.data() + kKeyDim * kDeltaCols;
  for (int head = 0; head < kKeyHeads; ++head) last[head * kKeyDim + 5] = 2;  // q asks for the value of row 5
  Machine machine(layer, 1);
  run_rows(layer, machine, x, 0, kKeyDim + 1, 0);
  for (int i = 0; i < kValues; ++i)
    EXPECT_NEAR(last[2 * kKeys + i], static_cast<float>(500 + i) / std::sqrt(static_cast<float>(kKeyDim)), 1e-3);
}

TEST(StateLayout, PutsMatricesOnCacheLines) {
  const StateLayout layout{.channels = 5, .width = 4, .heads = 3, .rows = 2, .cols = 3};
  EXPECT_EQ(layout.inputs(), 15u);
  EXPECT_EQ(layout.matrices_at(), 16u);
  EXPECT_EQ(layout.bytes(), 192u);  // 16 + 18 numbers, rounded up
  EXPECT_EQ((StateLayout{.channels = 16, .width = 3}.bytes()), 128u);
}

}  // namespace
}  // namespace quire
