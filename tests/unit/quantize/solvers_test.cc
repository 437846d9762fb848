// Solvers of Hugging Face methods: what holds for any weights, and inputs that are damaged or degenerate.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/float8.h"
#include "error_of.h"
#include "input_statistics_of.h"
#include "quantize/solve/awq.h"
#include "quantize/solve/float4.h"
#include "quantize/solve/float8.h"
#include "quantize/solve/float_codes.h"
#include "quantize/solve/gptq.h"
#include "quantize/solve/smoothquant.h"
#include "quantize/solve/table4.h"

namespace quire {
namespace {

FloatMatrix normal_matrix(int rows, int cols, float deviation, int seed) {
  std::mt19937 generator(static_cast<unsigned>(seed));
  std::normal_distribution<float> normal(0, deviation);
  FloatMatrix m(rows, cols);
  for (float& x : m.values) x = normal(generator);
  return m;
}

// Rows of inputs that depend on each other, some much larger than others.
FloatMatrix correlated_inputs(int rows, int cols, int seed) {
  const FloatMatrix sources = normal_matrix(rows, cols / 4, 1, seed), mix = normal_matrix(cols, cols / 4, 1, seed + 1),
                    noise = normal_matrix(rows, cols, 0.3f, seed + 2);
  FloatMatrix x = multiply_transposed(sources, mix);
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c) x.row(r)[c] = (x.row(r)[c] + noise.row(r)[c]) * (c % 17 == 0 ? 8.0f : 0.5f);
  }
  return x;
}

double output_error_of(const FloatMatrix& weights, const FloatMatrix& quantized, const InputStatistics& inputs) {
  FloatMatrix d = weights;
  for (size_t i = 0; i < d.values.size(); ++i) d.values[i] -= quantized.values[i];
  return squared_output_error(d, inputs.gram);
}

TEST(IntegerGrid, CoversTheRangeAndRoundsToHalfAStep) {
  Team team(2);
  const FloatMatrix w = normal_matrix(9, 70, 1, 1);
  for (const int bits : {2, 3, 4, 8}) {
    for (const bool symmetric : {false, true}) {
      for (const auto type : {ScaleType::kF32, ScaleType::kF16, ScaleType::kBf16}) {
        const IntegerGrid grid{.bits = bits, .group = 32, .symmetric = symmetric, .scale_type = type};
        const IntegerMatrix m = round_to_nearest(w, nullptr, grid, team);
        for (int r = 0; r < w.rows; ++r) {
          std::vector<float> values(70);
          m.dequantize(r, values);
          for (size_t c = 0; c < values.size(); ++c) {
            const GroupFit fit = m.fit_of(r, static_cast<int>(c) / 32);
            EXPECT_EQ(fit.scale, rounded_scale(fit.scale, type));
            // Half a step; and where the scale was rounded down, the ends of the range are outside.
            const float lost = type == ScaleType::kBf16 ? 0x1p-8f : type == ScaleType::kF16 ? 0x1p-11f : 0;
            EXPECT_LE(std::fabs(values[c] - w.row(r)[c]), fit.scale * (0.51f + lost * static_cast<float>(grid.most())))
                << bits << symmetric;
          }
        }
      }
    }
  }
}

TEST(IntegerGrid, KeepsZerosAndConstantsExact) {
  Team team(1);
  FloatMatrix w(3, 32);
  std::ranges::fill(w.row(1), 0.25f);
  std::ranges::fill(w.row(2), -3.0f);
  for (const bool symmetric : {false, true}) {
    for (const bool squares : {false, true}) {
      for (const int least_zero : {0, 1}) {
        const FloatMatrix back =
            round_to_nearest(w, nullptr,
                             {.bits = 4, .symmetric = symmetric, .least_zero = least_zero, .least_squares = squares},
                             team)
                .dequantized();
        for (size_t i = 0; i < back.values.size(); ++i) EXPECT_NEAR(back.values[i], w.values[i], 1e-6f);
      }
    }
  }
}

TEST(IntegerGrid, NeverGivesAZeroPointBelowTheLeast) {
  Team team(1);
  FloatMatrix w = normal_matrix(16, 64, 1, 2);
  for (float& x : w.values) x = std::fabs(x);
  const IntegerMatrix m =
      round_to_nearest(w, nullptr, {.bits = 4, .group = 32, .symmetric = false, .least_zero = 1}, team);
  for (const uint8_t zero : m.zeros) EXPECT_EQ(zero, 1);
}

TEST(IntegerGrid, LosesLessWithLeastSquares) {
  Team team(1);
  const FloatMatrix w = normal_matrix(32, 256, 1, 3);
  const InputStatistics even = input_statistics_of(normal_matrix(600, 256, 1, 4));
  for (const int bits : {2, 3, 4}) {
    for (const bool symmetric : {false, true}) {
      IntegerGrid grid{.bits = bits, .group = 64, .symmetric = symmetric};
      const double plain = output_error_of(w, round_to_nearest(w, &even, grid, team).dequantized(), even);
      grid.least_squares = true;
      EXPECT_LT(output_error_of(w, round_to_nearest(w, &even, grid, team).dequantized(), even), plain) << bits;
    }
  }
}

TEST(IntegerGrid, HoldsTinyWeightsAndRefusesHugeOnes) {
  Team team(1);
  FloatMatrix w = normal_matrix(2, 32, 1e-9f, 5);
  IntegerGrid grid{.bits = 4, .scale_type = ScaleType::kF16};
  for (const float scale : round_to_nearest(w, nullptr, grid, team).scales) EXPECT_GT(scale, 0);
  for (float& x : w.values) x *= 1e16f;
  EXPECT_NE(error_of([&] { round_to_nearest(w, nullptr, grid, team); }).find("too large for scales of float16"),
            std::string::npos);
  grid.least_squares = true;
  EXPECT_NE(error_of([&] { round_to_nearest(w, nullptr, grid, team); }).find("too large for scales of float16"),
            std::string::npos);
}

TEST(Gptq, LosesLessThanRoundingAtEveryWidth) {
  Team team(2);
  const FloatMatrix w = normal_matrix(40, 192, 1, 6);
  const InputStatistics inputs = input_statistics_of(correlated_inputs(800, 192, 7));
  for (const int bits : {2, 3, 4, 8}) {
    const IntegerGrid grid{.bits = bits, .group = 64, .symmetric = true, .least_squares = true};
    const double plain = output_error_of(w, round_to_nearest(w, &inputs, grid, team).dequantized(), inputs);
    for (const bool by_size : {false, true}) {
      for (const bool fixed : {false, true}) {
        const InverseFactor factor = factor_inverse(inputs, by_size, 0.01, team);
        const IntegerMatrix m = solve_gptq(w, factor, grid, fixed, team);
        EXPECT_LT(output_error_of(w, m.dequantized(), inputs), 0.5 * plain) << bits << by_size << fixed;
      }
    }
  }
}

TEST(Gptq, DoesNotDependOnTheTeamOrOnOtherRows) {
  Team team(1);
  Team one(1), three(3);
  const FloatMatrix w = normal_matrix(70, 160, 1, 8);
  const InputStatistics inputs = input_statistics_of(correlated_inputs(300, 160, 9));
  const InverseFactor factor = factor_inverse(inputs, true, 0.01, team);
  const IntegerGrid grid{.bits = 4, .group = 48, .symmetric = false, .least_squares = true};  // groups across blocks
  const IntegerMatrix a = solve_gptq(w, factor, grid, false, one), b = solve_gptq(w, factor, grid, false, three);
  EXPECT_EQ(a.codes, b.codes);
  EXPECT_EQ(a.scales, b.scales);
}

// The method as its paper's Algorithm 1 has it, without blocks.
TEST(Gptq, GivesTheCodesOfThePlainAlgorithm) {
  Team team(1);
  const FloatMatrix w = normal_matrix(5, 300, 1, 10);
  const InputStatistics inputs = input_statistics_of(correlated_inputs(900, 300, 11));
  for (const int group : {0, 100, 32}) {
    for (const bool by_size : {false, true}) {
      const InverseFactor u = factor_inverse(inputs, by_size, 0.01, team);
      const IntegerGrid grid{.bits = 4, .group = group, .symmetric = true};
      const IntegerMatrix m = solve_gptq(w, u, grid, false, team);
      size_t others = 0;
      for (int r = 0; r < w.rows; ++r) {
        std::vector<float> left(300);
        for (size_t i = 0; i < 300; ++i) left[i] = w.row(r)[u.order[i]];
        GroupFit fit;
        for (size_t i = 0; i < 300; ++i) {
          const size_t size = grid.group_of_row(300);
          if (i % size == 0) fit = fit_group(std::span(left).subspan(i, std::min(size, 300 - i)), {}, grid);
          const int code = round_code(left[i], fit, grid);
          others += code != m.codes_of(r)[u.order[i]];
          const float error = (left[i] - value_of(code, fit)) / u.row(static_cast<int>(i))[i];
          for (size_t k = i + 1; k < 300; ++k) left[k] -= error * u.row(static_cast<int>(i))[k];
        }
      }
      // Sums in another order may move a weight across the middle between two codes.
      EXPECT_LE(others, 15u) << group << by_size;
    }
  }
}

TEST(Gptq, FactorsTheInverse) {
  Team team(1);
  const InputStatistics inputs = input_statistics_of(correlated_inputs(200, 48, 12));
  const InverseFactor u = factor_inverse(inputs, true, 0.05, team);
  double trace = 0;
  for (size_t i = 0; i < 48; ++i) trace += inputs.gram[i * 48 + i];
  // U (H / mean + damping) U^T must be the identity: U^T U is the inverse.
  for (int i = 0; i < 48; ++i) {
    for (int j = 0; j < 48; ++j) {
      double sum = 0;
      for (int a = 0; a < 48; ++a) {
        for (int b = 0; b < 48; ++b) {
          const double h =
              inputs.gram[static_cast<size_t>(u.order[a] * 48 + u.order[b])] / (trace / 48) + (a == b ? u.damping : 0);
          sum += u.row(i)[a] * h * u.row(j)[b];
        }
      }
      EXPECT_NEAR(sum, i == j ? 1 : 0, 1e-3) << i << " " << j;
      if (j < i) {
        EXPECT_EQ(u.row(i)[j], 0);
      }
    }
  }
}

// Several tiles, of which the last is smaller.
TEST(Gptq, FactorsAlikeWithAllThreads) {
  constexpr int kInputs = 600;
  const InputStatistics inputs = input_statistics_of(correlated_inputs(900, kInputs, 20));
  Team one(1), three(3);
  const InverseFactor u = factor_inverse(inputs, true, 0.05, one);
  EXPECT_EQ(factor_inverse(inputs, true, 0.05, three).upper, u.upper);
  double trace = 0;
  for (size_t i = 0; i < kInputs; ++i) trace += inputs.gram[i * kInputs + i];
  FloatMatrix upper(kInputs, kInputs), h(kInputs, kInputs);
  upper.values = u.upper;
  for (int a = 0; a < kInputs; ++a) {
    for (int b = 0; b < kInputs; ++b)
      h.row(a)[b] =
          static_cast<float>(inputs.gram[static_cast<size_t>(u.order[a] * kInputs + u.order[b])] / (trace / kInputs)) +
          (a == b ? static_cast<float>(u.damping) : 0);
  }
  const FloatMatrix product = multiply_transposed(multiply_transposed(upper, h), upper);  // U H^T U^T
  for (int i = 0; i < kInputs; ++i) {
    for (int j = 0; j < kInputs; ++j) ASSERT_NEAR(product.row(i)[j], i == j ? 1 : 0, 2e-3) << i << " " << j;
  }
}

TEST(Gptq, RaisesTheDampingOfSingularInputs) {
  Team team(1);
  FloatMatrix x = normal_matrix(4, 64, 1, 13);  // fewer rows than inputs
  const InputStatistics inputs = input_statistics_of(x);
  EXPECT_EQ(factor_inverse(inputs, false, 0.01, team).damping, 0.01);
  const InverseFactor raised = factor_inverse(inputs, false, 0, team);
  EXPECT_GT(raised.damping, 0);
  EXPECT_LE(raised.damping, 0.001);
  for (const float u : raised.upper) ASSERT_TRUE(std::isfinite(u));
}

TEST(Gptq, SetsTheWeightsOfDeadInputsToZero) {
  Team team(1);
  FloatMatrix x = correlated_inputs(200, 64, 14);
  for (int r = 0; r < x.rows; ++r) x.row(r)[7] = x.row(r)[40] = 0;
  const InputStatistics inputs = input_statistics_of(x);
  const FloatMatrix w = normal_matrix(8, 64, 1, 15);
  for (const bool symmetric : {false, true}) {
    const FloatMatrix q =
        solve_gptq(w, factor_inverse(inputs, true, 0.01, team), {.bits = 4, .symmetric = symmetric}, false, team)
            .dequantized();
    for (int r = 0; r < q.rows; ++r) {
      EXPECT_EQ(q.row(r)[7], 0);
      EXPECT_EQ(q.row(r)[40], 0);
      EXPECT_GT(std::ranges::count_if(q.row(r), [](float x) { return x != 0; }), 20);
    }
  }
}

TEST(Gptq, RefusesAGramMatrixThatIsNone) {
  Team team(1);
  InputStatistics inputs = input_statistics_of(normal_matrix(100, 16, 1, 16));
  inputs.gram[16 * 3 + 5] = inputs.gram[16 * 5 + 3] = 1e9f;
  EXPECT_NE(error_of([&] { factor_inverse(inputs, false, 0.01, team); }).find("has no Cholesky factor"),
            std::string::npos);
}

TEST(Awq, LosesLessThanRounding) {
  Team team(2);
  const FloatMatrix w = normal_matrix(48, 128, 1, 17);
  const InputStatistics inputs = input_statistics_of(correlated_inputs(500, 128, 18));
  const IntegerGrid grid{.bits = 4, .group = 32, .symmetric = false};
  const double plain = output_error_of(w, round_to_nearest(w, nullptr, grid, team).dequantized(), inputs);
  const double clipped = output_error_of(w, round_with_clipping(w, inputs, grid, team).dequantized(), inputs);
  EXPECT_LT(clipped, plain);
  const InputScales found = search_awq_scales(w, inputs, grid, {}, team);
  EXPECT_NEAR(found.plain_error, plain, 1e-3 * plain);
  EXPECT_LT(found.error, 0.7 * plain);
}

TEST(Awq, ClipsNoRowToItsLoss) {
  Team team(1);
  const InputStatistics inputs = input_statistics_of(correlated_inputs(300, 96, 19));
  const IntegerGrid grid{.bits = 3, .group = 32, .symmetric = false};
  for (int seed = 20; seed < 40; ++seed) {
    const FloatMatrix w = normal_matrix(1, 96, 1, seed);
    EXPECT_LE(output_error_of(w, round_with_clipping(w, inputs, grid, team).dequantized(), inputs),
              output_error_of(w, round_to_nearest(w, nullptr, grid, team).dequantized(), inputs) * (1 + 1e-4))
        << seed;
  }
}

TEST(Awq, GivesTiedInputsOneFactor) {
  Team team(1);
  const FloatMatrix w = normal_matrix(16, 64, 1, 41);
  const InputStatistics inputs = input_statistics_of(correlated_inputs(200, 64, 42));
  std::vector<int> tied(64), alone(64);
  for (int i = 0; i < 64; ++i) tied[static_cast<size_t>(i)] = i % 16;
  const auto scales = search_awq_scales(w, inputs, {.bits = 4, .group = 32, .symmetric = false}, tied, team).scales;
  const std::vector<float> largest(64, 2.0f);
  const auto smooth = search_smooth_scales(w, largest, inputs, tied, 0.5f, team).scales;
  for (size_t i = 16; i < 64; ++i) {
    EXPECT_FLOAT_EQ(scales[i], scales[i - 16]);
    EXPECT_FLOAT_EQ(smooth[i], smooth[i - 16]);
  }
}

TEST(SmoothQuant, UsesTheMiddleWithoutASample) {
  Team team(1);
  InputStatistics inputs = input_statistics_of(correlated_inputs(50, 32, 43));
  inputs.sample.clear();
  const FloatMatrix w = normal_matrix(8, 32, 1, 44);
  const std::vector<float> largest(32, 2.0f);
  const auto scales = search_smooth_scales(w, largest, inputs, {}, std::nullopt, team).scales;
  for (size_t i = 0; i < 32; ++i) EXPECT_FLOAT_EQ(scales[i], std::sqrt(inputs.largest[i] / 2.0f));
}

TEST(FloatCodes, AreTheNearest) {
  for (int code = 0; code < 16; ++code) {
    if (code != 8) {
      EXPECT_EQ(e2m1_code(e2m1_number(static_cast<uint8_t>(code))), code);
    }
  }
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;  // NaN
    EXPECT_EQ(e4m3_code(e4m3_to_f32(static_cast<uint8_t>(code))), code);
  }
  for (float x = -7; x < 7; x += 0.01f) {
    float nearest = INFINITY;
    for (const float number : kE2M1Numbers) nearest = std::min({nearest, std::fabs(x - number), std::fabs(x + number)});
    EXPECT_FLOAT_EQ(std::fabs(x - e2m1_number(e2m1_code(x))), nearest);
  }
  EXPECT_EQ(e2m1_code(0.25f), 0);  // ties go to the even code
  EXPECT_EQ(e2m1_code(0.75f), 2);
  EXPECT_EQ(e2m1_code(5), 6);
  EXPECT_EQ(e4m3_code(INFINITY), 0x7e);
}

TEST(Float4, LosesLessThanTheStandardsOwnScales) {
  Team team(2);
  const FloatMatrix w = normal_matrix(16, 256, 0.02f, 45);
  const auto loss = [&](const FloatMatrix& q) {
    double sum = 0, all = 0;
    for (size_t i = 0; i < q.values.size(); ++i) {
      sum += std::pow(static_cast<double>(q.values[i] - w.values[i]), 2);
      all += std::pow(static_cast<double>(w.values[i]), 2);
    }
    return sum / all;
  };
  // ggml's searches: 0.0131 and 0.0106 of normal weights (docs/quantization.md).
  EXPECT_LT(loss(round_to_mxfp4(w, {}, team).dequantized()), 0.0131);
  EXPECT_LT(loss(round_to_nvfp4(w, {}, 0.08f, team).dequantized()), 0.0090);
}

TEST(Float4, KeepsZerosAndExtremes) {
  Team team(1);
  FloatMatrix w(3, 32);
  w.row(1)[5] = 3e38f;
  w.row(2)[9] = 1e-38f;
  const FloatMatrix mx = round_to_mxfp4(w, {}, team).dequantized();
  for (const float x : mx.row(0)) EXPECT_EQ(x, 0);
  EXPECT_NEAR(mx.row(1)[5] / 3e38f, 1, 0.2);
  EXPECT_NEAR(mx.row(2)[9] / 1e-38f, 1, 0.2);
  for (float& x : w.values) x = std::min(x, 1.0f);
  const FloatMatrix nv = round_to_nvfp4(w, {}, 1, team).dequantized();
  for (const float x : nv.row(0)) EXPECT_EQ(x, 0);
  EXPECT_NEAR(nv.row(1)[5], 1, 0.1);
}

TEST(Float8, GivesEachBlockItsOwnScale) {
  Team team(2);
  FloatMatrix w = normal_matrix(130, 200, 1, 46);
  for (float& x : std::span(w.values).first(200)) x *= 1000;
  const Float8Matrix rows = round_to_float8(w, 1, 0, ScaleType::kF32, team),
                     blocks = round_to_float8(w, 128, 128, ScaleType::kF32, team);
  EXPECT_EQ(rows.scales.size(), 130u);
  EXPECT_EQ(blocks.scales.size(), 4u);
  for (const Float8Matrix* m : {&rows, &blocks}) {
    const FloatMatrix q = m->dequantized();
    for (size_t i = 0; i < q.values.size(); ++i) {
      const size_t at = i / 200 / m->row_block * m->scale_cols() + i % 200 / m->col_block;
      // Half a step: 1/16 of a number, or of the smallest normal one.
      ASSERT_LE(std::fabs(q.values[i] - w.values[i]),
                std::max(std::fabs(w.values[i]) / 16, m->scales[at] * 0x1p-10f) * 1.001f);
    }
  }
}

TEST(Table4, ReadsBackWhatItWrites) {
  Team team(1);
  const FloatMatrix w = normal_matrix(30, 100, 0.02f, 47);
  const Table4Matrix plain = round_to_table4(w, Table4Matrix::Kind::kNf4, false, team),
                     nested = round_to_table4(w, Table4Matrix::Kind::kNf4, true, team);
  EXPECT_EQ(plain.codes, nested.codes);
  for (size_t block = 0; block < plain.magnitudes.size(); ++block)
    EXPECT_NEAR(nested.magnitude_of(block), plain.magnitudes[block], 0.02f * plain.magnitudes[block]);
}

}  // namespace
}  // namespace quire
