// What the emulated device counts, the failures that it feigns, and orders of blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "cuda/alphabet/alphabet.h"
#include "cuda/emulated/counts_file.h"
#include "cuda/emulated/device.h"
#include "cuda/kernels/rows.h"
#include "cuda/stream.h"
#include "error_of.h"
#include "unit/cuda/device_values.h"
#include "unit/cuda/planted.h"

namespace quire::cuda {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EmulatedCounters : public ::testing::Test {
 protected:
  KernelCounters count(const LaunchShape& shape, const auto& body) {
    device_.reset_counters();
    EXPECT_EQ(fault_of(device_, shape, body), "");
    return device_.counters().at("planted");
  }
  KernelCounters count(const auto& body) { return count({.threads = 32, .shared_bytes = 32768}, body); }

  EmulatedDevice device_;
  OnDevice<float> floats_{device_, size_t{4096}};
};

TEST_F(EmulatedCounters, CountsSectors) {
  const Global<float> x = floats_.data();
  const auto sectors = [&](const auto& at) {
    const auto counters = count([=] { x[at()] = 1; });
    EXPECT_EQ(counters.global_requests, 1u);
    EXPECT_EQ(counters.global_written, 128u);
    EXPECT_EQ(counters.global_read, 0u);
    return counters.global_sectors;
  };
  EXPECT_EQ(sectors([] { return thread(); }), 4u);
  EXPECT_EQ(sectors([] { return 31 - thread(); }), 4u);
  EXPECT_EQ(sectors([] { return thread() + 1; }), 5u);
  EXPECT_EQ(sectors([] { return 2 * thread(); }), 8u);
  EXPECT_EQ(sectors([] { return 64 * thread(); }), 32u);
  const auto wide = count([=] {
    for (int i = 0; i < 3; ++i) load<4>(x + 4 * (thread() + 32 * i));
  });
  EXPECT_EQ(wide.global_requests, 3u);
  EXPECT_EQ(wide.global_sectors, 3 * 16u);
  EXPECT_EQ(wide.global_read, 3 * 512u);
  EXPECT_EQ(count({.x = 2, .y = 3, .threads = 32}, [=] { static_cast<void>(static_cast<float>(x[0])); }).global_sectors,
            6u);
}

TEST_F(EmulatedCounters, CountsBankConflicts) {
  const auto conflicts = [&](const auto& at) {
    const auto counters = count([=] { shared<float>(0)[at()] = 1; });
    EXPECT_EQ(counters.shared_requests, 1u);
    return counters.bank_conflicts;
  };
  EXPECT_EQ(conflicts([] { return thread(); }), 0u);
  EXPECT_EQ(conflicts([] { return 2 * thread(); }), 1u);
  EXPECT_EQ(conflicts([] { return 32 * thread(); }), 31u);
  EXPECT_EQ(conflicts([] { return 33 * thread(); }), 0u);
  const auto of_words = [&](int stride) {
    return count([=] { store(shared<float>(0) + stride * thread(), Words<4>{}); }).bank_conflicts;
  };
  EXPECT_EQ(of_words(4), 0u);
  EXPECT_EQ(of_words(20), 0u);
  EXPECT_EQ(of_words(32), 4 * 7u);
  // load_matrices(): a pass for the 8 rows of each matrix. The stores before count, too.
  const auto of_rows = [&](int stride) {
    const auto counters = count([=] {
      store(shared<float>(0) + stride * thread(), Words<4>{});
      uint32_t words[4];
      load_matrices(words, shared<float>(0) + stride * thread());
    });
    return counters.bank_conflicts - of_words(stride);
  };
  EXPECT_EQ(of_rows(20), 0u);
  EXPECT_EQ(of_rows(32), 4 * 7u);
}

TEST_F(EmulatedCounters, CountsBytesOfALaunchOnce) {
  const Global<float> x = floats_.data();
  // Four blocks read the same 128 bytes, and each writes 128 of its own, which it then reads and writes again.
  const auto counters = count({.x = 4, .threads = 32}, [=] {
    const int own = 32 * (1 + block_x()) + thread();
    x[own] = x[thread()];
    x[own] = x[own] + 1;
  });
  EXPECT_EQ(counters.first_read, 128u);
  EXPECT_EQ(counters.first_written, 4 * 128u);
  EXPECT_EQ(counters.global_read, 8 * 128u);
  EXPECT_EQ(counters.global_written, 8 * 128u);
  // The next launch reads them from memory again.
  EXPECT_EQ(count([=] { x[thread()] = x[thread()]; }).first_read, 128u);
  EXPECT_EQ(device_.counters().at("planted").first_written, 128u);
}

TEST_F(EmulatedCounters, CountsLaunchesAndProducts) {
  const auto counters = count({.x = 3, .threads = 64, .shared_bytes = 256}, [] {
    float d[4] = {};
    int32_t sums[4] = {};
    multiply_bf16(d, {}, {});
    multiply_f16(d, {}, {});
    multiply_i8(sums, {}, {});
  });
  EXPECT_EQ(counters.launches, 1u);
  EXPECT_EQ(counters.blocks, 3u);
  EXPECT_EQ(counters.threads, 64);
  EXPECT_EQ(counters.shared_bytes, 256);
  EXPECT_EQ(counters.matrix_products, 3 * 2 * 3u);
  EXPECT_EQ(counters.integer_products, 3 * 2u);
}

// The lines of append_counts(), as fields.
std::vector<std::vector<std::string>> fields_of(const std::string& file) {
  std::vector<std::vector<std::string>> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream text(line);
    lines.emplace_back();
    for (std::string field; std::getline(text, field, '\t');) lines.back().push_back(field);
  }
  return lines;
}

TEST_F(EmulatedCounters, AreALineOfAFileForEachKernel) {
  const std::string file = ::testing::TempDir() + "kernel_counts.tsv";
  std::remove(file.c_str());
  const Global<float> x = floats_.data();
  count({.threads = 32, .shared_bytes = 64}, [=] { x[thread()] = 1; });
  run_alone(device_, {.threads = 32}, ForColumns<GatherRows>{});
  append_counts(file, "one", device_.facts(), device_.counters_by_entry());
  append_counts(file, "two", device_.facts(), device_.counters_by_entry());
  const auto lines = fields_of(file);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_THAT(lines[0], ElementsAre("work", "capability", "name", "kernel", "threads", "shared_bytes", "launches",
                                    "blocks", "first_read", "first_written", "global_read", "global_written",
                                    "global_requests", "global_sectors", "shared_requests", "bank_conflicts",
                                    "matrix_products", "integer_products"));
  const auto line_of = [&](const char* work, const char* name) {
    return *std::ranges::find_if(lines, [&](const auto& line) { return line[0] == work && line[2] == name; });
  };
  EXPECT_THAT(line_of("two", "planted"), ElementsAre("two", "90", "planted", _, "32", "64", "1", "1", "0", "128", "0",
                                                     "128", "1", "4", "0", "0", "0", "0"));
  EXPECT_EQ(line_of("one", "gather_rows")[3], "quire::cuda::ForColumns<quire::cuda::GatherRows>");
}

TEST_F(EmulatedCounters, FailsTheLaunchThatIsAskedFor) {
  const Global<float> x = floats_.data();
  const auto add = [=] { x[thread()] += 1; };
  std::vector<Launch> launches(3, make_launch({.threads = 32}, planted(add)));
  device_.inject({.launch = 4});
  device_.run(launches);
  device_.finish();
  EXPECT_EQ(floats_.values()[0], 3);
  EXPECT_EQ(error_of([&] { device_.run(launches); }), "the emulated device has failed in kernel planted");
  EXPECT_THAT(error_of([&] { device_.finish(); }), HasSubstr("has failed; restart"));
  EXPECT_THAT(error_of([&] { floats_.values(); }), HasSubstr("has failed; restart"));
  EXPECT_THAT(error_of([&] { device_.allocate(1); }), HasSubstr("has failed; restart"));
}

TEST(EmulatedFailures, EndStreamsCleanly) {
  EmulatedDevice device;
  const OnDevice<int> memory(device, size_t{32});
  const Global<int> x = memory.data();
  const auto add = [=] { x[thread()] += 1; };
  Stream stream(device, true);
  for (const bool lost : {false, false, true}) {
    if (lost) device.lose();
    stream.launch({.threads = 32}, planted(add));
    EXPECT_EQ(error_of([&] { stream.finish(); }) != "", lost);
  }
}

TEST(EmulatedFailures, RefuseMemory) {
  EmulatedDevice device(EmulatedOptions{.memory = 1000});
  std::byte* a = device.allocate(600);
  EXPECT_EQ(device.free_memory(), 400u);
  EXPECT_EQ(error_of([&] { device.allocate(401); }),
            "the emulated device cannot allocate 401 bytes; 400 of 1000 are free");
  device.free(a);
  EXPECT_EQ(device.free_memory(), 1000u);
  device.inject({.allocation = 1});
  a = device.allocate(1);
  EXPECT_EQ(error_of([&] { device.allocate(1); }), "the emulated device cannot allocate 1 bytes; 999 of 1000 are free");
  std::byte* b = device.allocate(1);
  device.free(a);
  device.free(b);
  EXPECT_THROW(device.free(b), DeviceFault);
}

TEST(EmulatedDeviceOrder, RunsBlocksInTheOrderOfASeed) {
  // Each block writes how many were before it, by counting in memory of the host.
  std::vector<int> orders[3];
  for (const uint32_t seed : {0u, 1u, 2u}) {
    EmulatedDevice device(EmulatedOptions{.checks = {.seed = seed}});
    int started = 0;
    std::vector<int> order(24, -1);
    int* const count = &started;
    int* const blocks = order.data();
    EXPECT_EQ(fault_of(device, {.x = 2, .y = 3, .z = 4, .threads = 1},
                       [=] { blocks[(*count)++] = block_x() + 2 * (block_y() + 3 * block_z()); }),
              "");
    orders[seed] = order;
    std::ranges::sort(order);
    for (int i = 0; i < 24; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  }
  EXPECT_TRUE(std::ranges::is_sorted(orders[0]));
  EXPECT_NE(orders[1], orders[0]);
  EXPECT_NE(orders[1], orders[2]);
}

}  // namespace
}  // namespace quire::cuda
