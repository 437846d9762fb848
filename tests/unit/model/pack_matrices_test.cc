#include "model/packing/pack_matrices.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/memory.h"
#include "ops/cpu/cpu_backend.h"
#include "unit/base/mapped_sample.h"

namespace quire {
namespace {

TEST(PackMatrices, HoldsLittleOfTheFile) {
  constexpr int kRows = 2560, kCols = 4096;  // 40 MiB
  const TemporaryFile file("");
  std::filesystem::resize_file(file.path(), size_t{kRows} * kCols * sizeof(float));
  const MappedFile mapped(file.path());
  PackedMatrix matrix;
  MatrixJob job{&matrix, {}, 0};
  job.from.file_rows = kRows;
  job.from.type = TensorType::F32;
  job.from.bytes = mapped.bytes();
  matrix = job.from.describe(kRows, kCols);
  LargeBuffer memory(matrix.bytes());
  Team team(2);
  CpuBackend backend("auto", team);
  pack_matrices({&job, 1}, backend, memory.data(), file.path(), {&mapped, 1}, team, {});
  EXPECT_LE(resident_kib(file.path()), 16 << 10);
}

}  // namespace
}  // namespace quire
