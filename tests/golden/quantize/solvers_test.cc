// Solvers of Hugging Face methods on a real layer with its real inputs, compared with plain implementations in float64
// (data/quantize/solvers.json: recipes and errors).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "base/half.h"
#include "format/safetensors.h"
#include "input_statistics_of.h"
#include "json/field.h"
#include "paths.h"
#include "quantize/solve/awq.h"
#include "quantize/solve/float8.h"
#include "quantize/solve/gptq.h"
#include "quantize/solve/smoothquant.h"

namespace quire {
namespace {

struct Layer {
  FloatMatrix weights, calibration, evaluation;
  InputStatistics inputs;
};

FloatMatrix read_matrix(const Safetensors& file, const char* name) {
  const TensorView& view = *file.find_tensor(name);
  FloatMatrix m(static_cast<int>(view.shape[0]), static_cast<int>(view.shape[1]));
  for (size_t i = 0; i < m.values.size(); ++i) {
    uint16_t half;
    std::memcpy(&half, view.bytes.data() + 2 * i, 2);
    m.values[i] = f16_to_f32(half);
  }
  return m;
}

const Layer& layer() {
  static const Layer all = [] {
    const Safetensors file = Safetensors::open(golden_dir() / "quantize/solvers.safetensors");
    Layer l{read_matrix(file, "weight"), read_matrix(file, "x_calibration"), read_matrix(file, "x_eval"), {}};
    l.inputs = input_statistics_of(l.calibration);
    return l;
  }();
  return all;
}

double norm(const FloatMatrix& m) {
  double sum = 0;
  for (const float x : m.values) sum += static_cast<double>(x) * x;
  return std::sqrt(sum);
}

FloatMatrix difference(const FloatMatrix& a, const FloatMatrix& b) {
  FloatMatrix d = a;
  for (size_t i = 0; i < d.values.size(); ++i) d.values[i] -= b.values[i];
  return d;
}

// x w^T in float64, rounded.
FloatMatrix product(const FloatMatrix& x, const FloatMatrix& w) {
  FloatMatrix y(x.rows, w.rows);
  for (int i = 0; i < x.rows; ++i) {
    for (int j = 0; j < w.rows; ++j) {
      double sum = 0;
      for (int k = 0; k < x.cols; ++k) sum += static_cast<double>(x.row(i)[k]) * w.row(j)[k];
      y.row(i)[j] = static_cast<float>(sum);
    }
  }
  return y;
}

double output_error(const FloatMatrix& x, const FloatMatrix& quantized) {
  return norm(product(x, difference(layer().weights, quantized))) / norm(product(x, layer().weights));
}

double reference(const std::string& name, const char* what) {
  static const JsonField results = JsonField::read(golden_dir() / "quantize/solvers.json").at("results");
  return results.at(name).get<double>(what);
}

// At most 3 % above the reference, on the inputs that the method saw and on others.
void expect_as_good(const std::string& name, const FloatMatrix& quantized, const char* how = "") {
  const double seen = output_error(layer().calibration, quantized),
               unseen = output_error(layer().evaluation, quantized);
  std::printf("%s%s: calibration %.5f (%+.1f %%), evaluation %.5f (%+.1f %%)\n", name.c_str(), how, seen,
              100 * (seen / reference(name, "error_calibration") - 1), unseen,
              100 * (unseen / reference(name, "error_eval") - 1));
  EXPECT_LE(seen, 1.03 * reference(name, "error_calibration")) << name << how;
  EXPECT_LE(unseen, 1.03 * reference(name, "error_eval")) << name << how;
}

IntegerGrid int4(int group, bool symmetric, bool least_squares) {
  return {
      .bits = 4, .group = group, .symmetric = symmetric, .least_squares = least_squares, .scale_type = ScaleType::kF16};
}

template <class F>
void for_each_grid(F f) {
  for (const int group : {128, 64}) {
    for (const bool symmetric : {true, false}) {
      for (const bool squares : {false, true})
        f(int4(group, symmetric, squares), "int4-g" + std::to_string(group) + (symmetric ? "-sym" : "-asym"),
          squares ? ", least squares" : "");
    }
  }
}

TEST(Solvers, RoundToNearestAsWellAsTheReference) {
  Team team(1);
  for_each_grid([&](const IntegerGrid& grid, const std::string& name, const char* how) {
    expect_as_good("rtn-" + name, round_to_nearest(layer().weights, nullptr, grid, team).dequantized(), how);
    if (grid.least_squares)
      expect_as_good("rtn-" + name, round_to_nearest(layer().weights, &layer().inputs, grid, team).dequantized(),
                     ", least squares by inputs");
  });
}

TEST(Solvers, GptqIsAsGoodAsTheReference) {
  Team team(1);
  for (const bool by_size : {false, true}) {
    const InverseFactor factor = factor_inverse(layer().inputs, by_size, 0.01, team);
    for_each_grid([&](const IntegerGrid& grid, const std::string& name, const char* how) {
      const auto quantized = solve_gptq(layer().weights, factor, grid, false, team);
      expect_as_good((by_size ? "gptq-actorder-" : "gptq-") + name, quantized.dequantized(), how);
    });
  }
}

TEST(Solvers, AwqIsAsGoodAsTheReference) {
  Team team(1);
  for (const int group : {128, 64}) {
    const IntegerGrid grid = int4(group, false, false);
    const InputScales found = search_awq_scales(layer().weights, layer().inputs, grid, {}, team);
    FloatMatrix scaled = layer().weights;
    for (size_t i = 0; i < scaled.values.size(); ++i) scaled.values[i] *= found.scales[i % 576];
    FloatMatrix quantized =
        round_with_clipping(scaled, divided_inputs(layer().inputs, found.scales), grid, team).dequantized();
    for (size_t i = 0; i < quantized.values.size(); ++i) quantized.values[i] /= found.scales[i % 576];
    expect_as_good("awq-int4-g" + std::to_string(group) + "-asym", quantized);
  }
}

// What int8 inputs and weights give.
double int8_error(std::span<const float> scales) {
  FloatMatrix x = layer().evaluation, w = layer().weights;
  for (size_t i = 0; i < w.values.size(); ++i) w.values[i] *= scales[i % 576];
  for (size_t i = 0; i < x.values.size(); ++i) x.values[i] /= scales[i % 576];
  round_rows_to_int8(w);
  round_rows_to_int8(x);
  const FloatMatrix outputs = product(layer().evaluation, layer().weights);
  return norm(difference(product(x, w), outputs)) / norm(outputs);
}

TEST(Solvers, SmoothQuantIsAsGoodAsTheReference) {
  Team team(1);
  std::vector<float> largest(576);
  for (size_t i = 0; i < layer().weights.values.size(); ++i)
    largest[i % 576] = std::max(largest[i % 576], std::fabs(layer().weights.values[i]));
  const std::vector<float> ones(576, 1.0f);
  EXPECT_NEAR(int8_error(ones), reference("w8a8-per-channel-per-token", "error_eval"), 2e-4);
  for (const auto alpha : {std::optional(0.5f), std::optional<float>()}) {
    const InputScales found = search_smooth_scales(layer().weights, largest, layer().inputs, {}, alpha, team);
    const double error = int8_error(found.scales),
                 expected = reference("smoothquant-a0.5-w8a8-dynamic-per-token", "error_eval");
    std::printf("smoothquant%s: %.5f (%+.1f %%)\n", alpha ? " 0.5" : "", error, 100 * (error / expected - 1));
    EXPECT_LE(error, 1.03 * expected);
  }
}

TEST(Solvers, Float8RowsAreAsGoodAsTheReference) {
  Team team(1);
  FloatMatrix x = round_to_float8(layer().evaluation, 1, 0, ScaleType::kF32, team).dequantized(),
              w = round_to_float8(layer().weights, 1, 0, ScaleType::kF32, team).dequantized();
  const FloatMatrix outputs = product(layer().evaluation, layer().weights);
  const double error = norm(difference(product(x, w), outputs)) / norm(outputs);
  EXPECT_NEAR(error, reference("fp8-e4m3-w8a8-per-channel-per-token", "error_eval"), 1e-4);
}

}  // namespace
}  // namespace quire
