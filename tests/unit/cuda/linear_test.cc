// Linears on the emulated device: of every format next to the reference kernels, and the same bits for any number of rows.
#include "cuda/linear/linear.h"
#include "cuda/linear/linear_many_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/emulated/device.h"
#include "cuda/linear/inputs.h"
#include "cuda/stream.h"
#include "kernels/kernels.h"
#include "sanitizers.h"
#include "unit/cuda/device_linear.h"
#include "unit/cuda/device_memory.h"
#include "unit/cuda/placed.h"
#include "unit/cuda/reference_linear.h"
#include "unit/kernels/random_panels.h"

namespace quire::cuda {
namespace {

using testing::kBefore;
using testing::PlacedMatrix;
using testing::PlacedRows;
using testing::random_rows;
using testing::reference;

// The magnitude of each result: that of the sum of its products' magnitudes.
std::vector<float> magnitudes(const PackedMatrix& w, const std::vector<float>& x, int rows) {
  std::vector<float> y;
  for (int r = 0; r < rows; ++r) {
    for (int n = 0; n < w.rows; ++n) {
      float sum = 0;
      for (int k = 0; k < w.cols; ++k) {
        // Scaled codes and minima are rounded on their own.
        float weight = std::abs(packed_weight(w, n, k));
        if (has_scales(w.format)) {
          const WeightParts parts = packed_parts(w, n, k);
          weight = std::abs(parts.scale * parts.code) + std::abs(parts.minimum);
        }
        sum += std::abs(x[static_cast<size_t>(r * w.cols + k)]) * weight;
      }
      y.push_back(sum);
    }
  }
  return y;
}

using Case = testing::LinearCase;

class CudaLinear : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = open(0);
  Stream stream_{*device_, false};
  Stream* on_ = &stream_;

  // The first `rows` rows of x from row `first` on.
  std::vector<float> run(const Case& c, Activations form, const std::vector<float>& x, int rows, int first = 0,
                         LinearVariant variant = {}) {
    return testing::by_device(*device_, *on_, c, form, std::span(x).subspan(static_cast<size_t>(first * c.w->cols)),
                              rows, variant);
  }
};

struct Shape {
  int outputs, cols;
};
// Odd numbers of outputs and of blocks, and inputs that are not whole blocks.
std::vector<Shape> shapes_of(const testing::Weights& w) {
  if (!has_scales(w.format)) return {{37, 77}, {5, 4129}};
  if (w.least_cols() == 256) return {{37, 768}};
  if (w.type) return {{37, 352}};
  return {{37, 336}};
}

TEST_F(CudaLinear, IsTheReferencesButForRoundingInEveryFormat) {
  std::mt19937 random(1);
  for (const testing::Weights& w : testing::all_weights()) {
    for (const auto [outputs, cols] : shapes_of(w)) {
      const int rows = 3;
      const auto weights = testing::random_matrix(w, outputs, cols, random);
      const std::vector<float> x = random_rows(rows, cols, random);
      const std::vector<float> magnitude = magnitudes(weights.matrix, x, rows);
      for (const Activations form : {Activations::kBf16, Activations::kF32}) {
        const Case c{.w = &weights.matrix};
        const std::vector<float> expected = reference(c, form, x, rows), got = run(c, form, x, rows);
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_NEAR(got[i], expected[i], magnitude[i] * 1e-6f)
              << w.name << " form " << static_cast<int>(form) << " inputs " << cols << " row "
              << i / static_cast<size_t>(outputs) << " output " << i % static_cast<size_t>(outputs);
        }
      }
    }
  }
}

// Variants of kernels are chosen by the number of rows.
TEST_F(CudaLinear, HasTheSameBitsForAnyNumberOfRows) {
  std::mt19937 random(2);
  const int most = 75;
  for (const TensorType type : {TensorType::BF16, TensorType::F16, TensorType::Q4_0, TensorType::Q4_1, TensorType::Q4_K,
                                TensorType::Q6_K, TensorType::Q8_0}) {
    const int outputs = 37, cols = 768;
    const auto weights = testing::random_matrix(type, outputs, cols, random);
    const std::vector<float> x = random_rows(most, cols, random);
    const Case c{.w = &weights.matrix};
    for (const Activations form : {Activations::kBf16, Activations::kF32}) {
      if (form == Activations::kF32 && type != TensorType::Q6_K) continue;
      const std::vector<float> all = run(c, form, x, most);
      for (const int rows : {1, 8, 9, 17, 40}) {
        for (const int first : {0, most - rows}) {
          const std::vector<float> some = run(c, form, x, rows, first);
          ASSERT_EQ(std::memcmp(some.data(), &all[static_cast<size_t>(first * outputs)], some.size() * sizeof(float)),
                    0)
              << info(type).name << " rows " << rows << " from " << first << " form " << static_cast<int>(form);
        }
      }
    }
  }
}

// Many rows are multiplied in tiles, by another kernel.
TEST_F(CudaLinear, HasTheSameBitsInTilesInEveryFormat) {
  std::mt19937 random(6);
  const int rows = 17;
  bool gated = true;
  for (const testing::Weights& w : testing::all_weights()) {
    const int outputs = 37, cols = has_scales(w.format) ? (w.least_cols() == 256 ? 256 : 160) : 77;
    const auto weights = testing::random_matrix(w, outputs, cols, random),
               up = testing::random_matrix(w, outputs, cols, random);
    const std::vector<float> x = random_rows(rows, cols, random);
    Case c{.w = &weights.matrix};
    // Every second format alone, the others gated: what becomes of the sums is the same for all.
    gated = !gated;
    if (gated) c.up = &up.matrix, c.projection.f = Nonlinearity::kSilu;
    const std::vector<float> expected = run(c, Activations::kBf16, x, rows, 0, {.kernel = LinearKernel::kRows}),
                             got = run(c, Activations::kBf16, x, rows, 0, {.kernel = LinearKernel::kTiles});
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(std::memcmp(&got[i], &expected[i], 4), 0)
          << w.name << " gated " << gated << " row " << i / outputs << " output " << i % outputs << ": " << got[i]
          << " instead of " << expected[i];
    }
  }
}

// The kernel of warpgroups, which the device chooses for more than 64 rows of 16 blocks: every format, all ranges in one
// block of threads or each in its own.
TEST_F(CudaLinear, HasTheSameBitsByWarpgroups) {
  std::mt19937 random(11);
  Stream with_scratch(*device_, false, size_t{1} << 20);
  const int rows = 66, outputs = 37, cols = 1024;
  // Under a sanitizer, which makes it ten times as slow, a quarter of the formats.
  const auto all = testing::all_weights();
  for (size_t i = 0; i < all.size(); i += all.size() / testing::rounds(static_cast<unsigned>(all.size()))) {
    const testing::Weights& w = all[i];
    const auto weights = testing::random_matrix(w, outputs, cols, random);
    const std::vector<float> x = random_rows(rows, cols, random);
    const Case c{.w = &weights.matrix};
    const std::vector<float> expected = run(c, Activations::kBf16, x, rows, 0, {.kernel = LinearKernel::kRows});
    for (Stream* const stream : {&stream_, &with_scratch}) {
      on_ = stream;
      const std::vector<float> got = run(c, Activations::kBf16, x, rows);
      ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
          << w.name << (stream == &stream_ ? "" : " with ranges apart");
    }
    on_ = &stream_;
  }
}

// Whichever variant a GPU's measurements may choose; blocks of threads of the kernel for few rows have several tiles each.
TEST_F(CudaLinear, HasTheSameBitsByEveryVariant) {
  std::mt19937 random(21);
  VariantTable table;
  table.note_asked();
  Stream asks(*device_, false, size_t{1} << 20, nullptr, &table);
  on_ = &asks;
  size_t compared = 0;
  bool gated = false;
  for (const TensorType type : {TensorType::BF16, TensorType::F16, TensorType::Q4_0, TensorType::Q4_1, TensorType::Q4_K,
                                TensorType::Q6_K, TensorType::Q2_K, TensorType::IQ4_NL, TensorType::Q8_0}) {
    for (const int rows : {1, 3, 8, 20, 66, 130}) {
      if (rows > 66 && type != TensorType::BF16) continue;
      gated = !gated;
      const int outputs = rows <= 8 ? 16 * 37 + 5 : 37, cols = rows <= 8 ? 768 : 1024;
      const auto weights = testing::random_matrix(type, outputs, cols, random),
                 up = testing::random_matrix(type, outputs, cols, random);
      Case c{.w = &weights.matrix};
      if (gated) c.up = &up.matrix, c.projection.f = Nonlinearity::kSilu;
      const std::vector<float> x = random_rows(rows, cols, random);
      const std::vector<float> expected = run(c, Activations::kBf16, x, rows);
      const std::vector<LaunchKind> kinds = table.take_asked();
      ASSERT_FALSE(kinds.empty());
      for (const LinearVariant& variant : variants_of(device_->facts(), kinds[0])) {
        if (variant.cluster > 0) continue;  // they have a test of their own
        const std::vector<float> got = run(c, Activations::kBf16, x, rows, 0, variant);
        ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
            << name(kinds[0]) << ": " << name(variant);
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 100U);
}

// Rows that a kernel prepares itself: with and without norms, rows of two eights a thread, and a second launch that needs them prepared.
TEST_F(CudaLinear, HasTheSameBitsWhenItPreparesInputs) {
  std::mt19937 random(23);
  DeviceMemory memory(*device_);
  struct Late {
    TensorType type;
    int cols, outputs, rows;
  };
  for (const Late& late_case : {Late{TensorType::BF16, 4160, 16 * 9 + 3, 1},
                                Late{TensorType::Q4_1, 768, 16 * 37 + 5, 8}, Late{TensorType::Q4_K, 8448, 16 * 5, 2},
                                Late{TensorType::Q6_K, 768, 37, 3}, Late{TensorType::F16, 77, 20, 5}}) {
    const TensorType type = late_case.type;
    const int cols = late_case.cols, outputs = late_case.outputs, rows = late_case.rows;
    const auto weights = testing::random_matrix(type, outputs, cols, random);
    const PlacedMatrix w(*device_, weights.matrix);
    const Linear linear{.weight = w.matrix};
    const PlacedRows in(*device_, rows, cols, random_rows(rows, cols, random));
    const Vector norm_weights(memory, random_rows(1, cols, random));
    const InputBuffers::Need need{rows, cols};
    InputBuffers inputs(*device_, {&need, 1}, {});
    const auto multiply = [&](const NormView& norm, bool late, std::initializer_list<LinearVariant> variants) {
      const Inputs prepared = inputs.prepare(stream_, Activations::kBf16, in.rows(), norm, rows, {&linear}, {}, late);
      EXPECT_EQ(inputs.late().to.data != nullptr, late);
      std::vector<float> all;
      for (const LinearVariant& variant : variants) {
        const PlacedRows out(*device_, rows, outputs, kBefore);
        const Projection p{.w = &linear, .y = out.rows()};
        project(stream_, prepared, {&p, 1}, rows, Activations::kBf16, variant, &inputs.late());
        stream_.finish();
        const std::vector<float> y = out.values();
        all.insert(all.end(), y.begin(), y.end());
      }
      return all;
    };
    const LinearVariant usual{.kernel = LinearKernel::kRows};
    for (const NormKind kind : {NormKind::kNone, NormKind::kRms, NormKind::kL2}) {
      const NormView norm{.kind = kind, .epsilon = 1e-5F, .weight = norm_weights.data()};
      const std::vector<float> expected = multiply(norm, false, {usual, usual, usual});
      for (const int panels : {1, 2}) {
        const LinearVariant prepares{.kernel = LinearKernel::kFewRows, .panels = panels, .prepares = true};
        const std::vector<float> got = multiply(norm, true, {prepares, usual, prepares});
        ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
            << info(type).name << " norm " << static_cast<int>(kind) << " panels " << panels;
      }
    }
  }
  EXPECT_GT(static_cast<EmulatedDevice&>(*device_).counters().at("linear_of_few_rows").launches, 0U);
}

// Several tiles in both directions, the last ones with few outputs and rows, and more chunks than stages; a chunk of one block.
TEST_F(CudaLinear, HasTheSameBitsInClusters) {
  struct Clusters {
    int rows, outputs, cols;
    std::vector<LinearVariant> variants;
  };
  const auto variant = [](int columns, int cluster, bool apart) {
    return LinearVariant{
        .kernel = LinearKernel::kWarpgroups, .columns = columns, .cluster = cluster, .apart = apart, .ahead = 4};
  };
  std::mt19937 random(22);
  Stream with_scratch(*device_, false, size_t{8} << 20);
  on_ = &with_scratch;
  for (const Clusters& c : {Clusters{258, 16 * 17 + 3, 1024, {variant(128, 4, true), variant(256, 2, false)}},
                            Clusters{34, 16 * 9, 4128, {variant(128, 2, false), variant(256, 4, true)}}}) {
    const auto weights = testing::random_matrix(TensorType::BF16, c.outputs, c.cols, random);
    const std::vector<float> x = random_rows(c.rows, c.cols, random);
    const Case linear{.w = &weights.matrix};
    const std::vector<float> expected = run(linear, Activations::kBf16, x, c.rows);
    for (const LinearVariant& clusters : c.variants) {
      const std::vector<float> got = run(linear, Activations::kBf16, x, c.rows, 0, clusters);
      ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0) << name(clusters);
      if (testing::kAddressSanitizer) break;
    }
  }
  EXPECT_GT(static_cast<EmulatedDevice&>(*device_).counters().at("linear_in_clusters").launches, 0U);
}

// A gate of another format than the other factor is multiplied after it, and finds it in the target.
TEST_F(CudaLinear, GatesMatricesOfTwoFormatsInTiles) {
  std::mt19937 random(12);
  const int rows = 17, outputs = 70, cols = 96;
  const auto w = testing::random_matrix(TensorType::Q4_0, outputs, cols, random),
             up = testing::random_matrix(TensorType::Q8_0, outputs, cols, random);
  const std::vector<float> x = random_rows(rows, cols, random);
  Case c{.w = &w.matrix, .up = &up.matrix};
  c.projection.f = Nonlinearity::kSilu;
  const std::vector<float> expected = run(c, Activations::kBf16, x, rows, 0, {.kernel = LinearKernel::kRows}),
                           got = run(c, Activations::kBf16, x, rows, 0, {.kernel = LinearKernel::kTiles});
  ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0);
}

// More rows than a tile, long rows of weights, whose ranges begin at multiples of four blocks, and odd strides of results.
TEST_F(CudaLinear, HasTheSameBitsInManyTiles) {
  std::mt19937 random(7);
  for (const auto [rows, outputs, cols] : {std::array{150, 5, 96}, std::array{18, 130, 4160}}) {
    const auto weights = testing::random_matrix(TensorType::Q4_0, outputs, cols, random);
    const std::vector<float> x = random_rows(rows, cols, random);
    Case c{.w = &weights.matrix};
    const std::vector<float> expected = run(c, Activations::kBf16, x, rows, 0, {.kernel = LinearKernel::kRows}),
                             got = run(c, Activations::kBf16, x, rows, 0, {.kernel = LinearKernel::kTiles});
    ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0) << rows;
  }
}

TEST_F(CudaLinear, FinishesOutputsLikeTheReference) {
  std::mt19937 random(3);
  const int outputs = 20, cols = 96, rows = 4;
  const std::vector<float> x = random_rows(rows, cols, random);
  for (const auto& [type, up_type] :
       {std::pair{TensorType::BF16, TensorType::BF16}, {TensorType::Q4_1, TensorType::Q8_0}}) {
    const auto w = testing::random_matrix(type, outputs, cols, random),
               up = testing::random_matrix(up_type, outputs, cols, random);
    const std::vector<float> magnitude = magnitudes(w.matrix, x, rows), up_magnitude = magnitudes(up.matrix, x, rows);
    for (const Nonlinearity f :
         {Nonlinearity::kNone, Nonlinearity::kSilu, Nonlinearity::kGelu, Nonlinearity::kGeluTanh, Nonlinearity::kRelu,
          Nonlinearity::kRelu2, Nonlinearity::kSigmoid, Nonlinearity::kClampedSwiglu}) {
      for (const int extras : {0, 1, 2, 3}) {
        for (const bool gated : {false, true}) {
          if (!gated && f == Nonlinearity::kClampedSwiglu) continue;
          Case c{.w = &w.matrix, .up = gated ? &up.matrix : nullptr};
          if (extras & 1) c.bias = random_rows(1, outputs, random);
          if ((extras & 1) && gated) c.up_bias = random_rows(1, outputs, random);
          c.projection = {.w = nullptr, .y = {}, .f = f, .alpha = 1.702f, .limit = 7};
          if (extras & 2) c.projection.scale = 0.37f;
          // Matrices of two formats cannot be gated and added.
          if ((extras & 2) && (!gated || type == up_type)) c.projection.accumulate = true;
          const std::vector<float> expected = reference(c, Activations::kBf16, x, rows),
                                   got = run(c, Activations::kBf16, x, rows);
          for (size_t i = 0; i < got.size(); ++i) {
            const float size = magnitude[i] + 10, tolerance = 1e-6f * size * (gated ? up_magnitude[i] + 10 : size);
            ASSERT_NEAR(got[i], expected[i], tolerance) << info(type).name << " f " << static_cast<int>(f) << " extras "
                                                        << extras << " gated " << gated << " at " << i;
          }
        }
      }
    }
  }
}

// Queries, keys and values of several formats in one call: as alone.
TEST_F(CudaLinear, ProjectsSeveralMatricesTogether) {
  std::mt19937 random(4);
  const int cols = 256, rows = 3;
  const std::vector<float> x = random_rows(rows, cols, random);
  const PlacedRows in(*device_, rows, cols, x);
  std::vector<testing::OwnedMatrix> matrices;
  std::vector<PlacedMatrix> placed;
  std::vector<Linear> linears;
  std::vector<PlacedRows> out;
  std::vector<Projection> projections;
  const TensorType types[] = {TensorType::Q4_K, TensorType::Q4_K, TensorType::Q6_K, TensorType::Q4_0, TensorType::Q4_0,
                              TensorType::Q4_0, TensorType::Q4_0, TensorType::Q4_1, TensorType::Q4_K};
  const int outputs[] = {40, 16, 17, 1, 33, 48, 5, 20, 18};
  const size_t count = std::size(types);
  for (size_t i = 0; i < count; ++i) {
    matrices.push_back(testing::random_matrix(types[i], outputs[i], cols, random));
    placed.emplace_back(*device_, matrices[i].matrix);
    linears.push_back({.weight = placed[i].matrix});
    out.emplace_back(*device_, rows, outputs[i], kBefore);
  }
  for (size_t i = 0; i < count; ++i) projections.push_back({.w = &linears[i], .y = out[i].rows()});
  const InputBuffers::Need need{rows, cols};
  InputBuffers inputs(*device_, {&need, 1}, {});
  const Inputs prepared = inputs.prepare(stream_, Activations::kBf16, in.rows(), {}, rows, {&linears[0]});
  project(stream_, prepared, projections, rows, Activations::kBf16);
  stream_.finish();
  for (size_t i = 0; i < count; ++i) {
    const std::vector<float> alone = run({.w = &matrices[i].matrix}, Activations::kBf16, x, rows),
                             together = out[i].values();
    ASSERT_EQ(std::memcmp(alone.data(), together.data(), alone.size() * sizeof(float)), 0) << i;
  }
}

TEST_F(CudaLinear, ProjectsHeads) {
  std::mt19937 random(5);
  const int heads = 3, outputs = 20, y_step = 22;
  // By warps, by warpgroups, and rows of E4M3.
  for (const auto [rows, cols, form] : {std::tuple{10, 48, Activations::kBf16}, std::tuple{70, 512, Activations::kBf16},
                                        std::tuple{11, 160, Activations::kFp8}}) {
    const int x_step = cols + 2;
    const std::vector<float> x = random_rows(rows, heads * x_step, random);
    std::vector<testing::OwnedMatrix> matrices;
    std::vector<PlacedMatrix> placed;
    std::vector<Linear> linears;
    for (int h = 0; h < heads; ++h) {
      matrices.push_back(form == Activations::kFp8
                             ? testing::random_matrix(testing::fp8_weights(), outputs, cols, random)
                             : testing::random_matrix(TensorType::BF16, outputs, cols, random));
      placed.emplace_back(*device_, matrices.back().matrix);
      linears.push_back({.weight = placed.back().matrix});
    }
    const PlacedRows in(*device_, rows, heads * x_step, x), out(*device_, rows, heads * y_step, kBefore);
    const InputBuffers::Need need{InputBuffers::head_rows(heads, rows), cols};
    InputBuffers inputs(*device_, {&need, 1}, {});
    project_heads(stream_, inputs,
                  {.matrices = linears, .x = in.rows(), .x_step = x_step, .y = out.rows(), .y_step = y_step}, rows,
                  form);
    stream_.finish();
    const std::vector<float> got = out.values();
    for (int h = 0; h < heads; ++h) {
      std::vector<float> of_head;
      for (int r = 0; r < rows; ++r) {
        const auto begin = x.begin() + r * heads * x_step + h * x_step;
        of_head.insert(of_head.end(), begin, begin + cols);
      }
      const LinearKernel kernel = form == Activations::kBf16 ? LinearKernel::kRows : LinearKernel::kUsual;
      const std::vector<float> expected =
          run({.w = &matrices[static_cast<size_t>(h)].matrix}, form, of_head, rows, 0, {.kernel = kernel});
      for (int r = 0; r < rows; ++r) {
        ASSERT_EQ(std::memcmp(&got[r * heads * y_step + h * y_step], &expected[r * outputs], sizeof(float) * outputs),
                  0)
            << h;
        ASSERT_EQ(got[r * heads * y_step + h * y_step + outputs], kBefore);
      }
    }
  }
}

}  // namespace
}  // namespace quire::cuda
