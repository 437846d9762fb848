// Mistakes with barriers and with operations of warps and warpgroups that the emulated device finds; next to each the right version.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "cuda/alphabet/alphabet.h"
#include "cuda/emulated/device.h"
#include "unit/cuda/device_values.h"
#include "unit/cuda/planted.h"

namespace quire::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class EmulatedWarps : public ::testing::Test {
 protected:
  std::string fault(const LaunchShape& shape, const auto& body) { return fault_of(device_, shape, body); }
  // A warpgroup, with some shared memory.
  std::string fault(const auto& body) { return fault({.threads = 128, .shared_bytes = 8192}, body); }

  EmulatedDevice device_;
};

TEST_F(EmulatedWarps, FindsThreadsThatSkipABarrier) {
  EXPECT_EQ(fault([] { sync_block(); }), "");
  EXPECT_THAT(fault([] {
                if (warp() != 2) sync_block();
              }),
              MatchesRegex(
                  "kernel planted, block \\(0, 0, 0\\): a deadlock, for its threads wait for each other. Thread 64 and "
                  "31 more: ended. Thread 0 and 95 more: waiting for sync_block\\(\\) at "
                  "emulated_warps_test.cc:[0-9]+\\."));
  EXPECT_THAT(fault([] {
                if (thread() > 0) sync_block();
              }),
              HasSubstr("Thread 0: ended. Thread 1 and 126 more: waiting for sync_block()"));
  EXPECT_THAT(fault([] {
                if (warp() < 2) sync_part(1, 96);
              }),
              HasSubstr("Thread 0 and 63 more: waiting for sync_part()"));
}

TEST_F(EmulatedWarps, FindsDivergentBarriers) {
  // Warps may be at barriers in different places, and lanes of a warp may not. (Places are lines.)
  const auto diverge = [](auto&& where) {
    return [=] {
      if (where()) {
        sync_block();
      } else {
        sync_block();
      }
    };
  };
  EXPECT_EQ(fault(diverge([] { return warp() == 1; })), "");
  EXPECT_THAT(fault(diverge([] { return lane() == 3; })),
              HasSubstr("lanes of warp 0 wait at a barrier in different places"));
  EXPECT_THAT(fault([] {
                if (lane() < 16 && warp() < 2) sync_part(1, 32);
              }),
              HasSubstr("only 16 lanes of warp 0 have come to a barrier"));
}

TEST_F(EmulatedWarps, FindsWrongBarriers) {
  EXPECT_EQ(fault([] { sync_part(1 + warp() / 2, 64); }), "");
  EXPECT_THAT(fault([] { sync_part(16, 128); }), HasSubstr("barrier 16 does not exist; there are 1 to 15"));
  EXPECT_THAT(fault([] { sync_part(0, 64); }),
              HasSubstr("barrier 0 is that of sync_block(); parts of a block have 1 to 15"));
  EXPECT_THAT(fault([] { sync_part(1, 48); }),
              HasSubstr("barrier 1 for 48 threads; it takes whole warps of a block of 128"));
  EXPECT_THAT(fault([] { sync_part(1, 160); }), HasSubstr("barrier 1 for 160 threads"));
  EXPECT_THAT(fault([] { sync_part(1, warp() == 0 ? 128 : 96); }),
              HasSubstr("barrier 1 for 96 threads, where others wait for 128"));
}

TEST_F(EmulatedWarps, FindsMissingLanes) {
  EXPECT_EQ(fault([] { shuffle(1, 0); }), "");
  EXPECT_THAT(fault([] {
                if (lane() != 7) shuffle(1, 0);
              }),
              HasSubstr("Thread 7 and 3 more: ended. Thread 0 and 123 more: waiting for a shuffle"));
  EXPECT_THAT(fault([] {
                if (lane() < 31) {
                  shuffle(1, 0);
                } else {
                  ballot(true);
                }
              }),
              HasSubstr("thread 31, at or after emulated_warps_test.cc:"));
  EXPECT_THAT(fault([] {
                if (lane() < 31) {
                  shuffle(1, 0);
                } else {
                  ballot(true);
                }
              }),
              HasSubstr("ballot() where other lanes of its warp wait for a shuffle"));
  EXPECT_THAT(fault({.threads = 40}, [] { shuffle(1, 0); }), HasSubstr("a shuffle in a warp of 8 lanes; it needs 32"));
  EXPECT_EQ(fault({.threads = 40}, [] { sync_warp(); }), "");
}

// A kernel that calls wait_previous() itself.
template <class Body>
struct WaitingKernel {
  static constexpr const char* kName = "waiting";
  static constexpr int kThreads = 64;
  static constexpr bool kWaits = true;
  Body body;
  DEVICE void operator()() const { body(); }
};

TEST_F(EmulatedWarps, FindsWorkBeforeEarlierLaunchesAreDone) {
  const OnDevice<float> memory(device_, size_t{64}), weights(device_, size_t{64});
  const Global<float> x = memory.data();
  const Global<const float> w = weights.data();
  const auto fill = [=] { x[thread()] = 1; };
  // What is wrong with a kernel that follows another in a step.
  const auto fault = [&](const auto& body) -> std::string {
    const Launch launches[] = {make_launch({.threads = 64}, planted(fill)),
                               make_launch({.threads = 64}, WaitingKernel<std::decay_t<decltype(body)>>{body})};
    std::string message;
    try {
      device_.run(launches);
    } catch (const DeviceFault& found) {
      message = found.what();
    }
    device_.finish();
    return message;
  };
  EXPECT_EQ(fault([=] {
              const float weight = w[thread()];
              wait_previous();
              x[thread()] += weight;
            }),
            "");
  EXPECT_THAT(fault([=] {
                const float early = x[thread()];
                wait_previous();
                x[thread()] = early;
              }),
              MatchesRegex(
                  "kernel waiting, block \\(0, 0, 0\\), thread 0: before wait_previous\\(\\), it reads what an earlier "
                  "launch wrote: address 0x[0-9a-f]+, byte 0 of an allocation of 256 bytes"));
  EXPECT_THAT(fault([=] {
                x[thread()] = 1;
                wait_previous();
              }),
              HasSubstr("a write of 4 bytes of global memory before wait_previous()"));
  EXPECT_THAT(fault([=] {
                if (thread() != 5) wait_previous();
              }),
              HasSubstr("thread 5: it ended without wait_previous(), which kernels with kWaits must call"));
  EXPECT_THAT(fault([=] {
                wait_previous();
                wait_previous();
              }),
              HasSubstr("wait_previous() a second time"));
  EXPECT_THAT(fault_of(device_, {.threads = 64}, [] { wait_previous(); }), HasSubstr("in a kernel without kWaits"));
  // The host has waited for the launch that wrote.
  const auto read = [=] {
    static_cast<void>(static_cast<float>(x[thread()]));
    wait_previous();
  };
  EXPECT_NO_THROW(run_alone(device_, {.threads = 64}, WaitingKernel<std::decay_t<decltype(read)>>{read}));
}

TEST_F(EmulatedWarps, FindsLaunchesThatNoDeviceCanRun) {
  const auto nothing = [] {};
  EXPECT_EQ(fault({.threads = 1024, .shared_bytes = 232448}, nothing), "");
  EXPECT_EQ(fault({.threads = 1025}, nothing), "kernel planted: a block of 1025 threads; it can have 1 to 1024");
  EXPECT_EQ(fault({.threads = 0}, nothing), "kernel planted: a block of 0 threads; it can have 1 to 1024");
  EXPECT_EQ(fault({.threads = 1, .shared_bytes = 232449}, nothing),
            "kernel planted: 232449 bytes of shared memory; a block can have 232448");
  EXPECT_EQ(fault({.y = 65536, .threads = 1}, nothing),
            "kernel planted: a grid of 1 x 65536 x 1 blocks; it can have 1 to 65535 in y and z");
}

// Products of a warpgroup by 8 rows of ones, with one step left out or added.
struct WideSteps {
  bool fence_products = true, fence_shared = true, sync = true, commit = true, wait = true;
  bool touch_b = false, touch_d = false, skip_warp = false;
  size_t at = 1024;
};

auto wide_product(Global<float> out, const WideSteps& steps) {
  return [=] {
    const Shared<uint32_t> words = shared<uint32_t>(1024);
    for (int i = thread(); i < 8 * 32; i += threads()) words[i] = pack_bf16(1, 1);
    if (steps.fence_shared) fence_shared();
    if (steps.sync) sync_block();
    if (steps.skip_warp && warp() == 2) return;
    float d[4] = {};
    const uint32_t a[4] = {pack_bf16(1, 1), pack_bf16(1, 1), pack_bf16(1, 1), pack_bf16(1, 1)};
    if (steps.fence_products) fence_products();
    multiply_bf16_wide<8>(d, a, product_rows(shared<uint16_t>(steps.at)));
    if (steps.commit) commit_products();
    if (steps.touch_b) words[0] = 0;
    if (steps.touch_d) d[1] = 5;
    if (steps.wait) wait_products<0>();
    if (out != nullptr) out[thread()] = d[0];
  };
}

TEST_F(EmulatedWarps, FindsMistakesWithProductsOfWarpgroups) {
  const OnDevice<float> memory(device_, size_t{128});
  const Global<float> out = memory.data();
  EXPECT_EQ(fault(wide_product(out, {})), "");
  EXPECT_EQ(memory.values(), std::vector<float>(128, 16));
  EXPECT_EQ(fault(wide_product(out, {.at = 1024 + 96})), "");
  EXPECT_THAT(fault(wide_product(out, {.fence_products = false})),
              HasSubstr("a product of a warpgroup without fence_products() since the block began"));
  EXPECT_THAT(fault(wide_product(out, {.fence_shared = false})),
              HasSubstr("it multiplies by byte 1024 of shared memory, which thread 0 wrote without fence_shared() "
                        "before the barrier"));
  EXPECT_THAT(fault(wide_product(out, {.sync = false})), HasSubstr("a race: it multiplies by byte"));
  EXPECT_THAT(fault(wide_product(out, {.wait = false})), HasSubstr("it ended without wait_products()"));
  EXPECT_THAT(fault(wide_product(out, {.commit = false})), HasSubstr("it ended without wait_products()"));
  EXPECT_THAT(fault(wide_product(out, {.touch_b = true})), HasSubstr("a race"));
  EXPECT_THAT(fault(wide_product(out, {.touch_d = true})),
              HasSubstr("wrote the result of a product before wait_products()"));
  EXPECT_THAT(fault(wide_product(out, {.skip_warp = true})), HasSubstr("thread 64, at or after"));
  EXPECT_THAT(fault(wide_product(out, {.at = 1024 + 128})),
              HasSubstr("product_rows() of byte 1152 of shared memory; it must be a multiple of 1024"));
  EXPECT_THAT(fault(wide_product(out, {.at = 2048})),
              HasSubstr("it multiplies by byte 2048 of shared memory, which is uninitialised"));
  EXPECT_THAT(fault({.threads = 64, .shared_bytes = 8192}, wide_product(out, {})),
              HasSubstr("in a block of no whole warpgroups"));
}

TEST_F(EmulatedWarps, HoldsResultsOfProductsBack) {
  // What a kernel sees that does not wait is not a number.
  const OnDevice<float> memory(device_, size_t{128});
  const Global<float> out = memory.data();
  EXPECT_THAT(fault(wide_product(out, {.wait = false})), HasSubstr("ended without wait_products()"));
  for (const float v : memory.values()) EXPECT_NE(v, v);
}

}  // namespace
}  // namespace quire::cuda
