// The fence itself: what must die does, and what goes through the backend arrives.
#include "fenced/fenced_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "ops/operation_limits.h"

namespace quire::testing {
namespace {

struct Fenced {
  Team team{1};
  CpuBackend cpu{"auto", team};
  FencedBackend backend{cpu};
};

OperationLimits two_rows() {
  return {.max_rows = 2, .inputs = {{2, 32}}, .forms = {}, .heads = {}, .attention = {}, .experts = {}};
}

TEST(FencedBackend, KeepsTheHostOut) {
  Fenced f;
  const BackendMemory memory(f.backend, 128);
  EXPECT_EQ(reinterpret_cast<size_t>(memory.data()) % 64, 0u);
  volatile std::byte* const bytes = memory.data();
  EXPECT_DEATH(bytes[0] = std::byte{1}, "");
  EXPECT_DEATH((void)bytes[127], "");
}

TEST(FencedBackend, HandsOverCopies) {
  Fenced f;
  const std::vector<float> numbers = {1, -2, 3.5f};
  const Vector vector(f.backend, numbers);
  EXPECT_EQ(vector.values(f.backend), numbers);
  const BackendMemory memory(f.backend, 64);
  HostCopy copy;
  EXPECT_TRUE(
      std::ranges::all_of(f.backend.view(memory.data(), 64, copy), [](std::byte b) { return b == std::byte{}; }));
  f.backend.copy(memory.data(), reinterpret_cast<const std::byte*>(vector.data()), sizeof(float));
  EXPECT_EQ(view_floats(f.backend, reinterpret_cast<float*>(memory.data()), 1, copy)[0], 1);
}

// Copies of many sizes, as of logits, must not allocate each time.
TEST(HostCopy, IsUsedAgainAndGrows) {
  Fenced f;
  HostCopy copy;
  const std::byte* const first = copy.room(f.backend, 1000).data();
  EXPECT_EQ(copy.room(f.backend, 10).data(), first);
  EXPECT_EQ(copy.room(f.backend, 1000).size(), 1000u);
  const std::span<std::byte> more = copy.room(f.backend, 1001);
  EXPECT_EQ(copy.room(f.backend, 2000).data(), more.data());
  HostCopy other = std::move(copy);
  EXPECT_EQ(other.room(f.backend, 2000).data(), more.data());
  EXPECT_EQ(copy.room(f.backend, 1).size(), 1u);
}

TEST(FencedBackend, ClearsMemoryThatIsUsedAgain) {
  Fenced f;
  HostCopy copy;
  for (int i = 0; i < 3; ++i) {
    const BackendMemory memory(f.backend, 10000);
    const auto bytes = f.backend.view(memory.data(), memory.size(), copy);
    EXPECT_TRUE(std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{}; })) << i;
    f.backend.write(memory.data(), memory.size(), [](auto to) { std::ranges::fill(to, std::byte{7}); });
  }
}

TEST(FencedBackend, ComputesInThere) {
  Fenced f;
  const auto ops = f.backend.operations(Activations::kF32, two_rows());
  const BackendMemory memory(f.backend, 2 * row_stride(32) * sizeof(float));
  const Rows x{reinterpret_cast<float*>(memory.data()), 32, row_stride(32)};
  ops->upload(std::vector<float>(32, 2), x.row(0));
  ops->add(x, 3, x.from(1), 1);
  ops->finish();
  HostCopy copy;
  EXPECT_EQ(view_floats(f.backend, x.row(1), 32, copy)[31], 6);
}

TEST(FencedBackend, RefusesToLookBeforeOperationsHaveFinished) {
  Fenced f;
  const auto ops = f.backend.operations(Activations::kF32, two_rows());
  const BackendMemory memory(f.backend, row_stride(32) * sizeof(float));
  ops->upload(std::vector<float>(32, 2), reinterpret_cast<float*>(memory.data()));
  HostCopy copy;
  EXPECT_DEATH(f.backend.view(memory.data(), 4, copy), "before its operations have finished");
  const auto fill = [](std::span<std::byte>) {};
  EXPECT_DEATH(f.backend.write(memory.data(), 4, fill), "before its operations have finished");
}

// As pages of the cache are copied while a pass runs that does not use them.
TEST(FencedBackend, CopiesWhileOperationsRun) {
  Fenced f;
  const auto ops = f.backend.operations(Activations::kF32, two_rows());
  const BackendMemory memory(f.backend, row_stride(32) * sizeof(float)), page(f.backend, 128);
  ops->upload(std::vector<float>(32, 2), reinterpret_cast<float*>(memory.data()));
  const std::vector<std::byte> bytes(64, std::byte{7});
  std::vector<std::byte> back(64);
  f.backend.upload(bytes, page.data());
  f.backend.copy(page.data() + 64, page.data(), 64);
  f.backend.read(page.data() + 64, back);
  EXPECT_EQ(back, bytes);
}

}  // namespace
}  // namespace quire::testing
