// Recurrent layers: every kernel set gives the reference's bits, whatever the cut of a prompt into calls, and the reference
// the values of the formulas.

#include "kernels/recurrent.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/kernels.h"
#include "unit/kernels/testable_kernels.h"

namespace quire {
namespace {

using Vector = std::vector<float>;

Vector random_state(int count, unsigned seed, float deviation = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  Vector x(static_cast<size_t>(count));
  for (float& value : x) value = normal(random);
  return x;
}

::testing::AssertionResult same(const Vector& expected, const Vector& got) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(got[i])) continue;
    if (std::memcmp(&expected[i], &got[i], sizeof(float)) != 0)
      return ::testing::AssertionFailure() << "at " << i << ": " << got[i] << " instead of " << expected[i];
  }
  return ::testing::AssertionSuccess();
}

// What a layer leaves behind: outputs, the state, and the state after row kCheckpoint.
struct Result {
  Vector y, state, checkpoint;
};
::testing::AssertionResult same(const Result& expected, const Result& got) {
  for (const auto part : {&Result::y, &Result::state, &Result::checkpoint}) {
    if (auto equal = same(expected.*part, got.*part); !equal) return equal;
  }
  return ::testing::AssertionSuccess();
}
constexpr int kTokens = 9, kCheckpoint = 5;

// The number of rows of each call.
const std::vector<std::vector<int>> kCuts = {{9}, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {2, 4, 3}, {8, 1}};

// Calls run(first row, rows, checkpoint) for each part of a cut.
template <class Run>
void for_parts(const std::vector<int>& cut, Vector& checkpoint, const Run& run) {
  int row = 0;
  for (const int rows : cut) {
    const int within = kCheckpoint - row;
    const bool here = within >= 0 && within < rows;
    run(row, rows, StateCheckpoint{here ? within : -1, here ? checkpoint.data() : nullptr});
    row += rows;
  }
}

struct Convolution {
  int channels, width;
  bool biased, silu, in_place;

  Result run(const KernelSet& kernels, const std::vector<int>& cut, int tile, float extreme = 1) const {
    Vector x = random_state(kTokens * channels, 1);
    x[static_cast<size_t>(channels)] = extreme;
    const Vector weight = random_state(width * channels, 2), bias = random_state(channels, 3);
    Result r{in_place ? x : Vector(x.size()), random_state((width - 1) * channels, 4), {}};
    r.checkpoint.resize(r.state.size());
    for_parts(cut, r.checkpoint, [&](int row, int rows, StateCheckpoint checkpoint) {
      const auto at = static_cast<ptrdiff_t>(row * channels), stride = static_cast<ptrdiff_t>(channels);
      const ShortConvArgs args{.x = (in_place ? r.y.data() : x.data()) + at,
                               .x_stride = static_cast<size_t>(stride),
                               .y = r.y.data() + at,
                               .y_stride = static_cast<size_t>(stride),
                               .rows = rows,
                               .channels = channels,
                               .width = width,
                               .weight = weight.data(),
                               .bias = biased ? bias.data() : nullptr,
                               .silu = silu,
                               .state = r.state.data(),
                               .checkpoint = checkpoint};
      for (int c = 0; c < channels; c += tile) kernels.short_conv(args, c, std::min(channels, c + tile));
    });
    return r;
  }
};

struct Delta {
  int key_dim, value_dim;
  int gates;  // 0, 1 or key_dim

  Vector q() const { return random_state(kTokens * key_dim, 1, 0.1f); }
  Vector k() const { return random_state(kTokens * key_dim, 2, 0.2f); }
  Vector v() const { return random_state(kTokens * value_dim, 3); }
  Vector beta() const {
    Vector beta = random_state(kTokens, 4);
    for (float& b : beta) b = 1 / (1 + std::exp(-b));
    return beta;
  }
  Vector gate() const {
    Vector gate = random_state(kTokens * std::max(gates, 1), 5);
    for (float& g : gate) g = -std::abs(g);
    return gate;
  }
  Vector state() const { return random_state(key_dim * value_dim, 6); }

  Result run(const KernelSet& kernels, const std::vector<int>& cut, float extreme = 0.5f) const {
    Vector ks = k(), vs = v();
    const Vector qs = q(), betas = beta(), gatings = gate();
    vs[static_cast<size_t>(value_dim)] = extreme, ks[static_cast<size_t>(3 * key_dim)] = extreme;
    Result r{Vector(vs.size()), state(), {}};
    r.checkpoint.resize(r.state.size());
    for_parts(cut, r.checkpoint, [&](int row, int rows, StateCheckpoint checkpoint) {
      const auto keys = static_cast<size_t>(key_dim), values = static_cast<size_t>(value_dim),
                 gate_stride = static_cast<size_t>(gates), first = static_cast<size_t>(row);
      kernels.gated_delta({.q = &qs[first * keys],
                           .k = &ks[first * keys],
                           .q_stride = keys,
                           .k_stride = keys,
                           .v = &vs[first * values],
                           .v_stride = values,
                           .gate = gates > 0 ? &gatings[first * gate_stride] : nullptr,
                           .gate_stride = gate_stride,
                           .gate_per_key = gates > 1,
                           .beta = &betas[first],
                           .out = &r.y[first * values],
                           .out_stride = values,
                           .rows = rows,
                           .key_dim = key_dim,
                           .value_dim = value_dim,
                           .state = r.state.data(),
                           .checkpoint = checkpoint});
    });
    return r;
  }
};

struct Mamba {
  int state_dim, head_dim;

  static constexpr float kA = -1.3f, kD = 0.7f;
  Vector x() const { return random_state(kTokens * head_dim, 1); }
  Vector b() const { return random_state(kTokens * state_dim, 2); }
  Vector c() const { return random_state(kTokens * state_dim, 3); }
  Vector dt() const {
    Vector dt = random_state(kTokens, 4);
    for (float& t : dt) t = std::abs(t);
    return dt;
  }
  Vector state() const { return random_state(state_dim * head_dim, 5); }

  Result run(const KernelSet& kernels, const std::vector<int>& cut, float extreme = 0.5f) const {
    Vector xs = x();
    const Vector bs = b(), cs = c(), dts = dt();
    xs[static_cast<size_t>(head_dim)] = extreme;
    Result r{Vector(xs.size()), state(), {}};
    r.checkpoint.resize(r.state.size());
    for_parts(cut, r.checkpoint, [&](int row, int rows, StateCheckpoint checkpoint) {
      const auto states = static_cast<size_t>(state_dim), dims = static_cast<size_t>(head_dim),
                 first = static_cast<size_t>(row);
      kernels.mamba2({.x = &xs[first * dims],
                      .x_stride = dims,
                      .b = &bs[first * states],
                      .c = &cs[first * states],
                      .b_stride = states,
                      .c_stride = states,
                      .dt = &dts[first],
                      .a = kA,
                      .d = kD,
                      .y = &r.y[first * dims],
                      .y_stride = dims,
                      .rows = rows,
                      .state_dim = state_dim,
                      .head_dim = head_dim,
                      .state = r.state.data(),
                      .checkpoint = checkpoint});
    });
    return r;
  }
};

constexpr float kExtremes[] = {1.0f,
                               std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN(),
                               0x1p-140f,
                               1e30f};

class Recurrent : public ::testing::TestWithParam<const KernelSet*> {};

TEST_P(Recurrent, ConvolvesToTheReferencesBitsInAnyCut) {
  for (int width = 2; width <= kMaxConvWidth; ++width) {
    for (const int channels : {1, 16, 37, 80}) {
      for (int options = 0; options < 8; ++options) {
        const Convolution c{channels, width, (options & 1) != 0, (options & 2) != 0, (options & 4) != 0};
        const Result expected = c.run(reference_kernels(), {kTokens}, channels);
        for (const auto& cut : kCuts) {
          for (const int tile : {channels, 32, 7})
            ASSERT_TRUE(same(expected, c.run(*GetParam(), cut, tile)))
                << "width " << width << " channels " << channels << " options " << options << " tile " << tile;
        }
      }
    }
  }
  for (const float extreme : kExtremes) {
    const Convolution c{20, 4, true, true, false};
    ASSERT_TRUE(same(c.run(reference_kernels(), {kTokens}, 20, extreme), c.run(*GetParam(), {kTokens}, 20, extreme)))
        << extreme;
  }
}

TEST_P(Recurrent, AppliesTheDeltaRuleToTheReferencesBitsInAnyCut) {
  for (const auto& [key_dim, value_dim] : {std::pair{8, 16}, {5, 7}, {64, 64}, {33, 150}, {256, 40}}) {
    for (const int gates : {0, 1, key_dim}) {
      const Delta d{key_dim, value_dim, gates};
      const Result expected = d.run(reference_kernels(), {kTokens});
      for (const auto& cut : kCuts)
        ASSERT_TRUE(same(expected, d.run(*GetParam(), cut)))
            << "keys " << key_dim << " values " << value_dim << " gates " << gates;
    }
  }
  for (const float extreme : kExtremes) {
    const Delta d{16, 70, 1};
    ASSERT_TRUE(same(d.run(reference_kernels(), {kTokens}, extreme), d.run(*GetParam(), {kTokens}, extreme)))
        << extreme;
  }
}

TEST_P(Recurrent, RunsMamba2ToTheReferencesBitsInAnyCut) {
  for (const auto& [state_dim, head_dim] : {std::pair{16, 16}, {5, 7}, {128, 64}, {33, 150}}) {
    const Mamba m{state_dim, head_dim};
    const Result expected = m.run(reference_kernels(), {kTokens});
    for (const auto& cut : kCuts)
      ASSERT_TRUE(same(expected, m.run(*GetParam(), cut))) << "states " << state_dim << " dims " << head_dim;
  }
  for (const float extreme : kExtremes) {
    const Mamba m{16, 70};
    ASSERT_TRUE(same(m.run(reference_kernels(), {kTokens}, extreme), m.run(*GetParam(), {kTokens}, extreme)))
        << extreme;
  }
}

// The state after the checkpoint's row continues as if the later rows had never been.
TEST_P(Recurrent, KeepsTheStateOfTheCheckpointsRow) {
  const std::vector<int> before = {kCheckpoint + 1};
  const Convolution c{37, 4, true, true, false};
  EXPECT_TRUE(same(c.run(*GetParam(), before, 37).state, c.run(*GetParam(), {kTokens}, 37).checkpoint));
  const Delta d{32, 50, 1};
  EXPECT_TRUE(same(d.run(*GetParam(), before).state, d.run(*GetParam(), {kTokens}).checkpoint));
  const Mamba m{32, 50};
  EXPECT_TRUE(same(m.run(*GetParam(), before).state, m.run(*GetParam(), {kTokens}).checkpoint));
}

TEST(RecurrentReference, ConvolvesByTheFormula) {
  const Convolution c{5, 4, true, true, false};
  const Result got = c.run(reference_kernels(), {kTokens}, 5);
  Vector inputs = random_state(3 * 5, 4), x = random_state(kTokens * 5, 1);
  x[5] = 1;
  inputs.insert(inputs.end(), x.begin(), x.end());
  const Vector weight = random_state(4 * 5, 2), bias = random_state(5, 3);
  for (size_t i = 0; i < got.y.size(); ++i) {
    double sum = bias[i % 5];
    for (size_t t = 0; t < 4; ++t) sum += double{weight[t * 5 + i % 5]} * inputs[i + t * 5];
    ASSERT_NEAR(got.y[i], sum / (1 + std::exp(-sum)), 1e-5);
  }
  EXPECT_TRUE(same(Vector(inputs.end() - 15, inputs.end()), got.state));
}

TEST(RecurrentReference, AppliesTheDeltaRuleByTheFormula) {
  for (const int gates : {0, 1, 12}) {
    const Delta d{12, 7, gates};
    const Result got = d.run(reference_kernels(), {kTokens});
    Vector k = d.k(), v = d.v();
    v[7] = k[3 * 12] = 0.5f;
    const Vector q = d.q(), beta = d.beta(), gate = d.gate(), state = d.state();
    std::vector<double> s(state.begin(), state.end());
    for (size_t row = 0; row < kTokens; ++row) {
      for (size_t j = 0; j < 7; ++j) {
        double recalled = 0, out = 0;
        for (size_t i = 0; i < 12; ++i) {
          if (gates > 0) s[i * 7 + j] *= std::exp(double{gate[gates == 1 ? row : row * 12 + i]});
          recalled += s[i * 7 + j] * k[row * 12 + i];
        }
        for (size_t i = 0; i < 12; ++i) {
          s[i * 7 + j] += k[row * 12 + i] * beta[row] * (v[row * 7 + j] - recalled);
          out += s[i * 7 + j] * q[row * 12 + i];
        }
        ASSERT_NEAR(got.y[row * 7 + j], out, 1e-5) << "gates " << gates << " row " << row;
      }
    }
  }
}

TEST(RecurrentReference, RunsMamba2ByTheFormula) {
  const Mamba m{12, 7};
  const Result got = m.run(reference_kernels(), {kTokens});
  Vector x = m.x();
  x[7] = 0.5f;
  const Vector b = m.b(), c = m.c(), dt = m.dt(), state = m.state();
  std::vector<double> s(state.begin(), state.end());
  for (size_t row = 0; row < kTokens; ++row) {
    for (size_t j = 0; j < 7; ++j) {
      double y = double{Mamba::kD} * x[row * 7 + j];
      for (size_t i = 0; i < 12; ++i) {
        s[i * 7 + j] =
            std::exp(double{dt[row]} * Mamba::kA) * s[i * 7 + j] + double{dt[row]} * x[row * 7 + j] * b[row * 12 + i];
        y += s[i * 7 + j] * c[row * 12 + i];
      }
      ASSERT_NEAR(got.y[row * 7 + j], y, 1e-4) << "row " << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(KernelSets, Recurrent, ::testing::ValuesIn(testing::testable_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace quire
