// The backend as a whole: its memory, what it says of itself, and a device that fails.
#include "cuda/cuda_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "cuda/emulated/device.h"
#include "kernels/take_rows.h"
#include "quire/error.h"
#include "unit/kernels/random_panels.h"

namespace quire::cuda {
namespace {

struct Emulated {
  EmulatedDevice* device;  // the backend's
  CudaBackend backend;

  explicit Emulated(const EmulatedOptions& options = {}) : Emulated(std::make_unique<EmulatedDevice>(options)) {}
  explicit Emulated(std::unique_ptr<EmulatedDevice> owned) : device(owned.get()), backend(std::move(owned)) {}
};

OperationLimits two_rows() {
  return {.max_rows = 2,
          .max_positions = 64,
          .inputs = {{2, 32}},
          .forms = {},
          .heads = {},
          .attention = {{4, 2, 16}},
          .experts = {4, 2, 32, 64}};
}

std::string message_of(const auto& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(CudaBackend, PinsMemoryOnceAtATime) {
  Emulated e;
  std::vector<std::byte> host(100);
  {
    const PinnedMemory pinned(e.backend, host);
    EXPECT_TRUE(pinned.pinned());
    EXPECT_FALSE(PinnedMemory(e.backend, host).pinned());
  }
  EXPECT_TRUE(PinnedMemory(e.backend, host).pinned());
  EXPECT_THROW(e.backend.unpin(host), DeviceFault);
}

TEST(CudaBackend, HandsOverBytesInPieces) {
  Emulated e;
  const size_t bytes = (size_t{17} << 20) + 5;  // more than fits in the memory that copies go through
  const BackendMemory memory(e.backend, bytes);
  e.backend.write(memory.data(), bytes, [](std::span<std::byte> to) {
    for (size_t i = 0; i < to.size(); ++i) to[i] = static_cast<std::byte>(i * 7 / 3);
  });
  HostCopy copy;
  const auto got = e.backend.view(memory.data(), bytes, copy);
  ASSERT_EQ(got.size(), bytes);
  for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(got[i], static_cast<std::byte>(i * 7 / 3)) << i;
  EXPECT_EQ(e.backend.share({memory.data(), 1}), nullptr);
}

TEST(CudaBackend, TakesRowsLikeTheCpu) {
  Emulated e;
  std::mt19937 random(1);
  const auto whole = testing::random_matrix(TensorType::Q4_0, 50, 64, random);
  const std::vector<int32_t> rows = {0, 3, 17, 18, 49};
  const PackedMatrix taken = describe_packed(TensorType::Q4_0, static_cast<int>(rows.size()), 64);
  std::vector<std::byte> expected(taken.bytes());
  take_rows(whole.matrix, rows, expected.data(), 0, taken.panels());
  const BackendMemory from(e.backend, whole.matrix.bytes()), to(e.backend, taken.bytes());
  e.backend.write(from.data(), from.size(),
                  [&](std::span<std::byte> bytes) { std::memcpy(bytes.data(), whole.matrix.data, bytes.size()); });
  PackedMatrix on_device = whole.matrix;
  on_device.data = from.data();
  e.backend.take_rows(on_device, rows, to.data());
  HostCopy copy;
  EXPECT_TRUE(std::ranges::equal(e.backend.view(to.data(), to.size(), copy), expected));
}

TEST(CudaBackend, RefusesFormsOfInputsByName) {
  Emulated e;
  const std::string message = message_of([&] { (void)e.backend.operations(Activations::kInt8x2, two_rows()); });
  EXPECT_NE(message.find("--activations int8x2"), std::string::npos) << message;
  EXPECT_NE(message.find("use bf16, f32, int8 or fp8"), std::string::npos) << message;
}

TEST(CudaBackend, RefusesFp8WithoutProductsOfIt) {
  Emulated ada({.major = 8, .minor = 9}), hopper;
  const std::string message = message_of([&] { (void)ada.backend.operations(Activations::kFp8, two_rows()); });
  EXPECT_NE(message.find("--activations fp8 needs a GPU of compute capability 9.0"), std::string::npos) << message;
  EXPECT_NE(message.find("has 8.9; use bf16"), std::string::npos) << message;
  EXPECT_EQ(message_of([&] { (void)hopper.backend.operations(Activations::kFp8, two_rows()); }), "");
}

TEST(CudaBackend, TakesNoMoreMemoryThanItSays) {
  Emulated e;
  const size_t before = *e.backend.own_memory();
  const auto operations = e.backend.operations(Activations::kBf16, two_rows());
  const size_t taken = before - *e.backend.own_memory();
  EXPECT_GT(taken, 0u);
  EXPECT_LE(taken, e.backend.operations_bytes(two_rows()) + 4096);
}

TEST(CudaBackend, SaysWhatIsFreeWhenMemoryIsShort) {
  Emulated e({.memory = size_t{8} << 20, .checks = {}});
  const std::string message = message_of([&] { (void)e.backend.allocate(size_t{16} << 20); });
  EXPECT_NE(message.find("16777216 bytes"), std::string::npos) << message;
}

TEST(CudaBackend, ThrowsInFinishWhenTheDeviceFails) {
  Emulated e;
  const auto operations = e.backend.operations(Activations::kBf16, two_rows());
  const BackendMemory memory(e.backend, 2 * row_stride(32) * sizeof(float));
  const Rows x{reinterpret_cast<float*>(memory.data()), 32, row_stride(32)};
  operations->scale(x, 2, 2);
  operations->finish();
  e.device->inject({.launch = 0, .allocation = {}});
  EXPECT_NE(message_of([&] {
              operations->scale(x, 2, 2);
              operations->finish();
            }),
            "");
  EXPECT_NE(message_of([&] { (void)e.backend.allocate(64); }), "");  // it is lost
}

TEST(CudaBackend, RunsStepsThatRepeatAsGraphsWithTheSameResults) {
  Emulated e;
  const auto operations = e.backend.operations(Activations::kBf16, two_rows());
  const BackendMemory memory(e.backend, 2 * row_stride(32) * sizeof(float));
  const Rows x{reinterpret_cast<float*>(memory.data()), 32, row_stride(32)};
  std::vector<float> numbers(32);
  std::iota(numbers.begin(), numbers.end(), 1.0f);
  HostCopy copy;
  for (int step = 0; step < 4; ++step) {  // the third is the first graph
    for (float& n : numbers) n += 0.5f;
    operations->upload(numbers, x.data);
    operations->scale(x, 2, 1);
    operations->finish();
    const auto got = view_floats(e.backend, x.data, 32, copy);
    for (size_t i = 0; i < 32; ++i) ASSERT_EQ(got[i], 2 * numbers[i]) << step;
  }
}

}  // namespace
}  // namespace quire::cuda
