// Embeddings on the emulated device have the host's bits.
#include "cuda/linear/embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "cuda/stream.h"
#include "unit/cuda/placed.h"
#include "unit/kernels/random_panels.h"

namespace quire::cuda {
namespace {

TEST(CudaEmbedding, HasTheHostsBitsInEveryFormat) {
  const std::unique_ptr<Device> device = open(0);
  Stream stream(*device, false);
  std::mt19937 random(1);
  const int rows = 35;
  const std::vector<int32_t> ids = {34, 0, -1, 17, 17};
  for (const testing::Weights& w : testing::all_weights()) {
    const int cols = w.least_cols() == 1 ? 77 : w.type ? 512 : 528;
    const auto host = testing::random_matrix(w, rows, cols, random);
    const testing::PlacedMatrix matrix(*device, host.matrix);
    for (const float scale : {1.0f, 0.3f}) {
      const int count = static_cast<int>(ids.size());
      const testing::PlacedRows replaced(*device, count, cols, 0.25f), added(*device, count, cols, 0.25f);
      embed(stream, matrix.matrix, ids, scale, replaced.rows());
      add_embeddings(stream, matrix.matrix, ids, scale, added.rows());
      stream.finish();
      const std::vector<float> got = replaced.values(), sum = added.values();
      for (size_t i = 0; i < ids.size(); ++i) {
        std::vector<float> expected(static_cast<size_t>(cols), 0.25f), expected_sum = expected;
        if (ids[i] >= 0) {
          unpack_row(host.matrix, ids[i], expected.data());
          for (size_t k = 0; k < expected.size(); ++k) {
            expected_sum[k] = std::fma(expected[k], scale, 0.25f);
            expected[k] *= scale;
          }
        }
        const size_t at = i * static_cast<size_t>(cols);
        ASSERT_EQ(std::memcmp(&got[at], expected.data(), expected.size() * sizeof(float)), 0) << w.name << " row " << i;
        ASSERT_EQ(std::memcmp(&sum[at], expected_sum.data(), expected.size() * sizeof(float)), 0)
            << w.name << " row " << i;
      }
    }
  }
}

}  // namespace
}  // namespace quire::cuda
