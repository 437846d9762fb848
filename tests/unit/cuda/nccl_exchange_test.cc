// What NCCL is asked for, by a library in its place (fake_nccl/nccl.h) that does it for emulated devices.
#include "cuda/ranks/nccl_exchange.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cuda/cuda_backend.h"
#include "cuda/emulated/device.h"
#include "error_of.h"
#include "fake_nccl/nccl.h"
#include "unit/cuda/device_values.h"
#include "unit/cuda/forwarding_device.h"
#include "unit/cuda/in_ranks.h"

namespace quire::cuda {
namespace {

using testing::NcclCall;
using testing::run_in_ranks;

// An emulated device that has a number and a stream as a GPU has.
class NumberedDevice final : public ForwardingDevice {
 public:
  explicit NumberedDevice(int number) : ForwardingDevice(device_), facts_(device_.facts()) { facts_.number = number; }

  const DeviceFacts& facts() const override { return facts_; }
  void* stream() override { return this; }

 private:
  EmulatedDevice device_;
  DeviceFacts facts_;
};

class CudaNccl : public ::testing::Test {
 protected:
  void SetUp() override {
    handle_ = ::dlopen(FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(handle_) << ::dlerror();
    take_calls();
    for (const int number : {0, 2, 5}) devices_.push_back(std::make_unique<NumberedDevice>(number));
    for (const auto& device : devices_) all_.push_back(device.get());
  }

  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(handle_, name));
  }
  std::vector<NcclCall> take_calls() const {
    return *function<decltype(fake_nccl_take_calls)>("fake_nccl_take_calls")();
  }
  void fail_after(int gathers) const { function<decltype(fake_nccl_fail_after)>("fake_nccl_fail_after")(gathers); }

  static size_t count(const std::vector<NcclCall>& calls, const std::string& name) {
    return static_cast<size_t>(std::ranges::count(calls, name, &NcclCall::name));
  }

  // Block r of rank r has the numbers 100 * r + its place; then all ranks have all.
  void gather(NcclExchange& exchange, int rank, size_t bytes) const {
    OnDevice<std::byte> blocks(*all_[static_cast<size_t>(rank)], 3 * bytes);
    std::vector<std::byte> values(3 * bytes);
    for (size_t i = 0; i < bytes; ++i) values[static_cast<size_t>(rank) * bytes + i] = byte_at(rank, i);
    blocks.write(values);
    exchange.gather(rank, blocks.data(), bytes);
    all_[static_cast<size_t>(rank)]->finish();
    const std::vector<std::byte> got = blocks.values();
    for (int r = 0; r < 3; ++r)
      for (size_t i = 0; i < bytes; ++i)
        ASSERT_EQ(got[static_cast<size_t>(r) * bytes + i], byte_at(r, i)) << r << " " << i;
  }
  static std::byte byte_at(int rank, size_t i) { return static_cast<std::byte>(100 * rank + static_cast<int>(i % 50)); }

  void* handle_ = nullptr;
  std::vector<std::unique_ptr<NumberedDevice>> devices_;
  std::vector<Device*> all_;
};

// One communicator for each GPU, by its number; each exchange is one gather of bytes in place, on the device's stream.
TEST_F(CudaNccl, GathersBlocksInPlaceOnEachStream) {
  {
    NcclExchange exchange(all_);
    EXPECT_FALSE(run_in_ranks(
        3,
        [&](int rank) {
          gather(exchange, rank, 48);
          gather(exchange, rank, 16);
        },
        [&] { exchange.give_up(); }));
  }
  const std::vector<NcclCall> calls = take_calls();
  ASSERT_EQ(calls.size(), 1u + 6u + 3u);
  EXPECT_EQ(calls[0].name, "CommInitAll");
  EXPECT_EQ(calls[0].devices, (std::vector<int>{0, 2, 5}));
  for (int rank = 0; rank < 3; ++rank) {
    std::vector<size_t> sizes;
    for (const NcclCall& call : calls) {
      if (call.name != "AllGather" || call.rank != rank) continue;
      sizes.push_back(call.count);
      EXPECT_EQ(call.type, NcclFunctions::kUint8);
      EXPECT_EQ(call.in_place, static_cast<ptrdiff_t>(call.count) * rank);
      EXPECT_EQ(call.stream, all_[static_cast<size_t>(rank)]);
    }
    EXPECT_EQ(sizes, (std::vector<size_t>{48, 16})) << rank;
  }
  EXPECT_EQ(count(calls, "CommDestroy"), 3u);
}

// A rank that fails aborts all communicators; the next gather connects the devices anew, once.
TEST_F(CudaNccl, ConnectsAgainAfterARankHasFailed) {
  {
    NcclExchange exchange(all_);
    const auto give_up = [&] { exchange.give_up(); };
    take_calls();
    const auto error = run_in_ranks(
        3,
        [&](int rank) {
          gather(exchange, rank, 16);
          if (rank == 1) throw Error(ErrorKind::kResource, "lost");
          gather(exchange, rank, 16);
        },
        give_up);
    ASSERT_TRUE(error);
    EXPECT_EQ(error_of([&] { std::rethrow_exception(error); }), "lost");
    EXPECT_EQ(count(take_calls(), "CommAbort"), 3u);
    exchange.reset();
    EXPECT_FALSE(run_in_ranks(
        3, [&](int rank) { gather(exchange, rank, 16); }, give_up));
    EXPECT_EQ(count(take_calls(), "CommInitAll"), 1u);

    // NCCL itself fails in one rank, while the others wait for it in their calls.
    fail_after(1);
    const auto own = run_in_ranks(
        3, [&](int rank) { gather(exchange, rank, 16); }, give_up);
    ASSERT_TRUE(own);
    EXPECT_NE(error_of([&] { std::rethrow_exception(own); }).find("NCCL failed to gather: fake failure"),
              std::string::npos);
    EXPECT_EQ(count(take_calls(), "CommAbort"), 3u);
    exchange.reset();
    EXPECT_FALSE(run_in_ranks(
        3, [&](int rank) { gather(exchange, rank, 16); }, give_up));
  }
  EXPECT_EQ(count(take_calls(), "CommDestroy"), 3u);
}

// GPUs, which have streams, are connected by NCCL, and what is missing is named.
TEST_F(CudaNccl, ConnectsBackendsOfGpus) {
  std::vector<std::unique_ptr<CudaBackend>> backends;
  std::vector<Backend*> ranks;
  for (const int number : {1, 3}) {
    backends.push_back(std::make_unique<CudaBackend>(std::make_unique<NumberedDevice>(number)));
    ranks.push_back(backends.back().get());
  }
  const std::unique_ptr<DeviceRanks> connected = ranks[0]->connect(ranks);
  EXPECT_EQ(connected->size(), 2);
  EXPECT_EQ(take_calls()[0].devices, (std::vector<int>{1, 3}));
}

TEST_F(CudaNccl, SaysWhatToInstall) {
  const std::string error = error_of([&] { NcclExchange exchange(all_, "libnccl-that-is-missing.so"); });
  for (const char* text : {"libnccl-that-is-missing.so", "libnccl2", "pip install nvidia-nccl-cu12", "LD_LIBRARY_PATH"})
    EXPECT_NE(error.find(text), std::string::npos) << text << " in " << error;
  EXPECT_NE(
      error_of([&] { NcclExchange exchange(all_, "libm.so.6"); }).find("libm.so.6 has no function ncclCommInitAll"),
      std::string::npos);
}

}  // namespace
}  // namespace quire::cuda
