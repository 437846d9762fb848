// Linears with int8 inputs on the emulated device: the bits of the CPU's reference, from the rounding of inputs on, for any number
// of rows and by either kernel.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cuda/emulated/device.h"
#include "cuda/linear/inputs.h"
#include "cuda/linear/linear.h"
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

using Case = testing::LinearCase;

constexpr float kNoOutliers = std::numeric_limits<float>::infinity();

// Formats with integer codes.
std::vector<testing::Weights> integer_weights() {
  std::vector<testing::Weights> some;
  for (const testing::Weights& w : testing::all_weights())
    if (activations_for(Activations::kInt8, w.format) == Activations::kInt8) some.push_back(w);
  return some;
}

class CudaLinearInt8 : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = open(0);
  Stream stream_{*device_, false, size_t{8} << 20};

  std::vector<float> run(const Case& c, Activations form, const std::vector<float>& x, int rows,
                         LinearVariant variant = {}) {
    return testing::by_device(*device_, stream_, c, form, x, rows, variant);
  }

  // The first result that differs, or "".
  static std::string difference(const std::vector<float>& got, const std::vector<float>& expected, int outputs) {
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(got[i]) && std::isnan(expected[i])) continue;
      if (std::memcmp(&got[i], &expected[i], sizeof(float)) != 0)
        return "row " + std::to_string(i / static_cast<size_t>(outputs)) + " output " +
               std::to_string(i % static_cast<size_t>(outputs)) + ": " + std::to_string(got[i]) + " instead of " +
               std::to_string(expected[i]);
    }
    return "";
  }
};

TEST_F(CudaLinearInt8, HasTheReferencesBitsInEveryFormat) {
  std::mt19937 random(1);
  const int rows = 3, outputs = 37;
  for (const testing::Weights& w : integer_weights()) {
    for (const int cols : {w.least_cols() == 256 ? 1280 : 1120, w.least_cols() == 256 ? 256 : w.type ? 32 : 80}) {
      const auto weights = testing::random_matrix(w, outputs, cols, random);
      const std::vector<float> x = random_rows(rows, cols, random);
      const Case c{.w = &weights.matrix};
      const std::vector<float> expected = reference(c, Activations::kInt8, x, rows);
      for (const LinearKernel kernel : {LinearKernel::kRows, LinearKernel::kTiles})
        ASSERT_EQ(difference(run(c, Activations::kInt8, x, rows, {.kernel = kernel}), expected, outputs), "")
            << w.name << " inputs " << cols << " kernel " << static_cast<int>(kernel);
    }
  }
}

TEST_F(CudaLinearInt8, HasTheReferencesBitsForAnyNumberOfRows) {
  std::mt19937 random(2);
  const int most = 33, outputs = 21;
  for (const char* name : {"Q4_0", "Q8_0", "Q4_K", "Q2_K", "Q6_K", "Int8"}) {
    for (const testing::Weights& w : integer_weights()) {
      if (w.name != name) continue;
      const bool whole_rows = w.name == "Int8";
      const Activations form = whole_rows ? Activations::kInt8Row : Activations::kInt8;
      const int cols = w.least_cols() == 256 ? 512 : 288;
      const auto weights = testing::random_matrix(w, outputs, cols, random);
      const std::vector<float> x = random_rows(most, cols, random);
      const Case c{.w = &weights.matrix, .threshold = whole_rows ? 2.0f : kNoOutliers};
      const std::vector<float> expected = reference(c, form, x, most);
      for (int rows = 1; rows <= most; ++rows) {
        const std::vector<float> got = run(c, form, x, rows);
        ASSERT_EQ(difference(got, expected, outputs), "") << name << " rows " << rows;
      }
    }
  }
}

// More rows than a tile has, and more inputs and outputs than fit in one stage and block of threads.
TEST_F(CudaLinearInt8, HasTheReferencesBitsInManyTiles) {
  std::mt19937 random(3);
  for (const auto [rows, outputs, cols] : {std::array{150, 5, 96}, std::array{18, 130, 2080}}) {
    for (const TensorType type : {TensorType::Q4_1, TensorType::Q8_0}) {
      const auto weights = testing::random_matrix(type, outputs, cols, random);
      const std::vector<float> x = random_rows(rows, cols, random);
      const Case c{.w = &weights.matrix};
      const std::vector<float> expected = reference(c, Activations::kInt8, x, rows);
      for (const LinearKernel kernel : {LinearKernel::kRows, LinearKernel::kTiles})
        ASSERT_EQ(difference(run(c, Activations::kInt8, x, rows, {.kernel = kernel}), expected, outputs), "")
            << info(type).name << " rows " << rows << " kernel " << static_cast<int>(kernel);
    }
  }
}

std::vector<float> with_extremes(std::vector<float> x, int cols) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto at = [&](int row, int col) -> float& { return x[static_cast<size_t>(row * cols + col)]; };
  at(1, 3) = 1e6f, at(1, 40) = -70000;  // beyond float16
  at(2, 5) = std::numeric_limits<float>::quiet_NaN();
  at(3, 6) = kInfinity, at(3, cols - 1) = -kInfinity;
  for (int i = 0; i < cols; ++i) at(4, i) = 0x1p-125f;                                           // counts as zeros
  for (int i = 0; i < cols; ++i) at(5, i) = i % 2 ? 12.7f : -0.05f * static_cast<float>(i % 9);  // codes at .5
  return x;
}

// All kernels for so many whole rows.
std::vector<LinearVariant> kernels_for(int rows) {
  std::vector<LinearVariant> all{{.kernel = LinearKernel::kRows}, {.kernel = LinearKernel::kTiles}};
  for (const int columns : {64, 128, 256}) {
    if (rows < 33) continue;
    for (const bool apart : {false, true})
      all.push_back({.kernel = LinearKernel::kWarpgroups, .columns = columns, .apart = apart});
  }
  return all;
}

TEST_F(CudaLinearInt8, MultipliesWholeRowsAndTheirOutliers) {
  std::mt19937 random(4);
  for (const auto [rows, outputs, cols] :
       {std::array{6, 37, 77}, std::array{6, 37, 1100}, std::array{35, 37, 300}, std::array{140, 150, 1100}}) {
    if (testing::kAddressSanitizer && rows > 100) continue;
    const auto weights = testing::random_matrix(testing::int8_row_weights(), outputs, cols, random);
    ASSERT_TRUE(takes_int8_rows(weights.matrix));
    const std::vector<float> x = with_extremes(random_rows(rows, cols, random), cols);
    for (const float threshold : {kNoOutliers, 2.5f, 0.5f}) {
      if (rows > 100 && threshold != 2.5f) continue;
      const Case c{.w = &weights.matrix, .threshold = threshold};
      const std::vector<float> expected = reference(c, Activations::kInt8Row, x, rows);
      for (const LinearVariant& variant : kernels_for(rows))
        ASSERT_EQ(difference(run(c, Activations::kInt8Row, x, rows, variant), expected, outputs), "")
            << "inputs " << cols << " threshold " << threshold << " kernel " << name(variant);
    }
  }
  EXPECT_GT(static_cast<EmulatedDevice&>(*device_).counters().at("finish_int8_sums").launches, 0U);
}

TEST_F(CudaLinearInt8, GatesWholeRows) {
  std::mt19937 random(9);
  const int rows = 40, outputs = 24, cols = 160;
  const auto w = testing::random_matrix(testing::int8_row_weights(), outputs, cols, random),
             up = testing::random_matrix(testing::int8_row_weights(), outputs, cols, random);
  const std::vector<float> x = random_rows(rows, cols, random);
  Case c{.w = &w.matrix, .up = &up.matrix, .threshold = 2.5f};
  c.bias = random_rows(1, outputs, random), c.up_bias = random_rows(1, outputs, random);
  c.projection = {.w = nullptr, .y = {}, .f = Nonlinearity::kRelu};
  const std::vector<float> expected = reference(c, Activations::kInt8Row, x, rows);
  for (const LinearVariant& variant : kernels_for(rows))
    ASSERT_EQ(difference(run(c, Activations::kInt8Row, x, rows, variant), expected, outputs), "") << name(variant);
}

TEST_F(CudaLinearInt8, FinishesOutputsLikeTheReference) {
  std::mt19937 random(5);
  const int outputs = 20, cols = 96, rows = 9;
  const std::vector<float> x = random_rows(rows, cols, random);
  const auto w = testing::random_matrix(TensorType::Q4_1, outputs, cols, random),
             same = testing::random_matrix(TensorType::Q4_1, outputs, cols, random),
             other = testing::random_matrix(TensorType::Q8_0, outputs, cols, random);
  for (const PackedMatrix* up : {static_cast<const PackedMatrix*>(nullptr), &same.matrix, &other.matrix}) {
    for (const bool extras : {false, true}) {
      Case c{.w = &w.matrix, .up = up};
      if (extras) {
        c.bias = random_rows(1, outputs, random);
        if (up) c.up_bias = random_rows(1, outputs, random);
      }
      c.projection = {.w = nullptr, .y = {}, .f = Nonlinearity::kRelu, .scale = extras ? 0.37f : 1.0f};
      c.projection.accumulate = extras && up != &other.matrix;  // matrices of two formats cannot be gated and added
      const std::vector<float> expected = reference(c, Activations::kInt8, x, rows);
      for (const LinearKernel kernel : {LinearKernel::kRows, LinearKernel::kTiles})
        ASSERT_EQ(difference(run(c, Activations::kInt8, x, rows, {.kernel = kernel}), expected, outputs), "")
            << "extras " << extras << " kernel " << static_cast<int>(kernel);
    }
  }
}

// Matrices without integer codes are multiplied in bf16 in the same call.
TEST_F(CudaLinearInt8, ProjectsMatricesOfSeveralFormatsTogether) {
  std::mt19937 random(6);
  const int cols = 256, rows = 3;
  const std::vector<float> x = random_rows(rows, cols, random);
  const PlacedRows in(*device_, rows, cols, x);
  std::vector<testing::OwnedMatrix> matrices;
  std::vector<PlacedMatrix> placed;
  std::vector<Linear> linears;
  std::vector<PlacedRows> out;
  std::vector<Projection> projections;
  const TensorType types[] = {TensorType::Q4_K, TensorType::Q4_1, TensorType::BF16, TensorType::Q6_K, TensorType::Q4_K};
  const int outputs[] = {40, 17, 5, 33, 16};
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
  const Inputs prepared = inputs.prepare(stream_, Activations::kInt8, in.rows(), {}, rows, {&linears[0], &linears[2]});
  project(stream_, prepared, projections, rows, Activations::kInt8);
  stream_.finish();
  for (size_t i = 0; i < count; ++i) {
    if (types[i] == TensorType::BF16) continue;
    const std::vector<float> expected = reference({.w = &matrices[i].matrix}, Activations::kInt8, x, rows);
    ASSERT_EQ(difference(out[i].values(), expected, outputs[i]), "") << i;
  }
}

// Inputs as the CPU rounds them; with a norm or a transform they go through the same code.
TEST_F(CudaLinearInt8, RoundsInputsLikeTheReference) {
  std::mt19937 random(7);
  const int rows = 6;
  for (const int cols : {50, 77, 1000, 9000, 17000}) {  // the longest are read by other kernels
    const std::vector<float> x = with_extremes(random_rows(rows, cols, random), cols);
    const PlacedRows in(*device_, rows, cols, x);
    const InputBuffers::Need need{rows, cols};
    InputBuffers inputs(*device_, {&need, 1}, {.int8_rows = true});
    for (const Activations form : {Activations::kInt8, Activations::kInt8Row}) {
      const float threshold = form == Activations::kInt8Row ? 2.5f : kNoOutliers;
      const Linear linear{.weight = describe_packed(TensorType::Q8_0, 16, (cols + 31) / 32 * 32),
                          .threshold = threshold};
      const Inputs prepared = inputs.prepare(stream_, form, in.rows(), {}, rows, {&linear}, form);
      stream_.finish();
      const Inputs::Entry& entry = prepared.of(form, linear);
      const testing::RoundedRows expected = testing::rounded_rows(form, threshold, x, rows, cols);
      const auto blocks = static_cast<size_t>((cols + kBlockInputs - 1) / kBlockInputs);
      for (int r = 0; r < rows; ++r) {
        SCOPED_TRACE("inputs " + std::to_string(cols) + " form " + std::to_string(static_cast<int>(form)) + " row " +
                     std::to_string(r));
        std::vector<std::byte> bytes(entry.stride);
        device_->download(bytes.data(), entry.data + static_cast<size_t>(r) * entry.stride, entry.stride);
        const auto equal = [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); };
        const std::byte* const row = expected.data.data() + static_cast<size_t>(r) * expected.stride;
        const auto floats_at = [&](size_t at) { return reinterpret_cast<const float*>(bytes.data() + at); };
        const auto bits_at = [&](size_t at) { return reinterpret_cast<const uint32_t*>(bytes.data() + at); };
        uint32_t any = 0;
        for (size_t b = 0; b < blocks; ++b) {
          SCOPED_TRACE("block " + std::to_string(b));
          const std::byte* const q = bytes.data() + b * kInt8Block;
          if (form == Activations::kInt8) {
            const Int8Block& want = reinterpret_cast<const Int8Block*>(row)[b];
            ASSERT_EQ(std::memcmp(q, want.q, sizeof want.q), 0);
            const float* const info = floats_at(blocks * kInt8Block + b * kInt8InfoBytes);
            ASSERT_TRUE(equal(info[0], want.scale) && equal(info[1], want.sum));
            ASSERT_TRUE(info[2] == want.half_sums[0] && info[3] == want.half_sums[1]);
            continue;
          }
          const Int8RowBlock& want = reinterpret_cast<const Int8RowBlock*>(row)[b];
          ASSERT_EQ(std::memcmp(q, want.q, sizeof want.q), 0);
          ASSERT_TRUE(equal(*floats_at(blocks * kInt8Block), want.scale));
          any |= want.outliers;
          if (bits_at(blocks * kInt8Block)[1] == 0) continue;
          const size_t numbers = blocks * kInt8Block + kInt8InfoBytes, masks = numbers + blocks * kBlockInputs * 2;
          ASSERT_EQ(bits_at(masks)[b], want.outliers);
          for (size_t i = 0; i < kBlockInputs; ++i) {
            if ((want.outliers >> i & 1) == 0) continue;
            ASSERT_EQ(reinterpret_cast<const uint16_t*>(bytes.data() + numbers)[b * kBlockInputs + i], want.x[i]);
          }
        }
        if (form == Activations::kInt8Row) {
          ASSERT_EQ(bits_at(blocks * kInt8Block)[1], any != 0 ? 1u : 0u);
        }
      }
    }
  }
}

// What decides the speed on a GPU: each weight is read once, one product multiplies a block, and lanes do not collide.
TEST(CudaLinearInt8Counters, ReadWeightsOnceAndCollideLittle) {
  EmulatedDevice device;
  Stream stream(device, false);
  std::mt19937 random(8);
  const int outputs = 64, cols = 2048;
  const auto weights = testing::random_matrix(TensorType::Q4_0, outputs, cols, random);
  const PlacedMatrix w(device, weights.matrix);
  const Linear linear{.weight = w.matrix};
  for (const int rows : {1, 8, 64}) {
    const PlacedRows in(device, rows, cols, random_rows(rows, cols, random)), out(device, rows, outputs, 0);
    const InputBuffers::Need need{rows, cols};
    InputBuffers inputs(device, {&need, 1}, {});
    const Inputs prepared = inputs.prepare(stream, Activations::kInt8, in.rows(), {}, rows, {&linear});
    device.reset_counters();
    const Projection p{.w = &linear, .y = out.rows()};
    project(stream, prepared, {&p, 1}, rows, Activations::kInt8);
    stream.finish();
    const KernelCounters counted = device.counters().at(rows <= 8 ? "int8_linear_of_rows" : "int8_linear_of_tiles");
    const auto tiles = static_cast<uint64_t>((rows + 7) / 8);
    EXPECT_EQ(counted.matrix_products, uint64_t{outputs / kPanel} * (cols / kBlockInputs) * tiles);
    if (rows == 1) {
      EXPECT_LE(counted.global_read, weights.matrix.bytes() + outputs / 32 * size_t{cols / 32} * 48 + 4096);
    }
    EXPECT_LE(counted.bank_conflicts, counted.shared_requests / 2) << rows;
  }
}

TEST(CudaLinearInt8Counters, OfWholeRowsReadInputsOnceForEach128Outputs) {
  EmulatedDevice device;
  Stream stream(device, false);
  std::mt19937 random(10);
  const int outputs = 256, cols = 2048, rows = 128;
  const auto weights = testing::random_matrix(testing::int8_row_weights(), outputs, cols, random);
  const testing::LinearCase c{.w = &weights.matrix, .threshold = kNoOutliers};
  testing::by_device(device, stream, c, Activations::kInt8Row, random_rows(rows, cols, random), rows);
  const KernelCounters counted = device.counters().at("linear_of_int8_rows");
  EXPECT_EQ(counted.matrix_products, uint64_t{outputs / kPanel} * (cols / kBlockInputs) * (rows / 8));
  EXPECT_EQ(counted.integer_products, counted.matrix_products);
  EXPECT_LE(counted.global_read,
            weights.matrix.bytes() + size_t{rows} * cols * (outputs / 128) + size_t{rows} * outputs * 16);
  EXPECT_LE(counted.bank_conflicts, size_t{rows} * outputs / 32);  // those of writing results
}

}  // namespace
}  // namespace quire::cuda
