// Mistakes with memory that the emulated device finds; next to each the right version, in which it finds none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/alphabet/alphabet.h"
#include "cuda/emulated/device.h"
#include "unit/cuda/device_values.h"
#include "unit/cuda/planted.h"

namespace quire::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class EmulatedMemory : public ::testing::Test {
 protected:
  std::string fault(const LaunchShape& shape, const auto& body) { return fault_of(device_, shape, body); }
  // Two warps and some shared memory.
  std::string fault(const auto& body) { return fault({.threads = 64, .shared_bytes = 4096}, body); }

  EmulatedDevice device_;
  OnDevice<float> floats_{device_, size_t{100}};
};

TEST_F(EmulatedMemory, FindsAccessesOutOfBounds) {
  const Global<float> x = floats_.data();
  EXPECT_EQ(fault([=] { x[thread()] = 1; }), "");
  EXPECT_EQ(fault([=] { x[99 - thread()] += 1; }), "");
  EXPECT_THAT(fault([=] { x[thread() + 37] = 1; }),
              MatchesRegex("kernel planted, block \\(0, 0, 0\\), thread 63: a write of 4 bytes of global memory out of "
                           "bounds: address 0x[0-9a-f]+, 0 bytes after the end of an allocation of 400 bytes"));
  EXPECT_THAT(fault([=] { x[thread()] = x[thread() - 1]; }), HasSubstr("4 bytes before an allocation of 400 bytes"));
  EXPECT_THAT(fault([=] { load<4>(x + 98); }), HasSubstr("a read of 16 bytes of global memory out of bounds"));
  EXPECT_THAT(fault([] { Global<float>(nullptr)[0] = 1; }), HasSubstr("out of bounds: address 0x0, nullptr"));
}

TEST_F(EmulatedMemory, FindsUseOfFreedMemory) {
  float* address = nullptr;
  {
    const OnDevice<float> freed(device_, size_t{10});
    address = freed.data();
  }
  const Global<const float> x = address;
  EXPECT_THAT(fault([=] { static_cast<void>(x[3]); }), HasSubstr("byte 12 of a freed allocation of 40 bytes"));
}

TEST_F(EmulatedMemory, FindsMisalignedAccesses) {
  const Global<float> x = floats_.data();
  EXPECT_EQ(fault([=] { load<4>(x + 4); }), "");
  EXPECT_THAT(fault([=] { load<4>(x + 2); }), HasSubstr("a read of 16 bytes of global memory, not aligned to them"));
  EXPECT_THAT(fault([=] { cast<double>(shared<float>(4))[0] = 1; }),
              HasSubstr("a write of 8 bytes of shared memory, not aligned to them: at byte 4"));
  EXPECT_THAT(fault([=] { copy_async<16>(shared<float>(8), x); }), HasSubstr("an asynchronous copy of 16 bytes"));
}

TEST_F(EmulatedMemory, FindsSharedMemoryOutOfBounds) {
  EXPECT_EQ(fault({.threads = 32, .shared_bytes = 128}, [] { shared<int>(0)[thread()] = 1; }), "");
  EXPECT_THAT(fault({.threads = 32, .shared_bytes = 124}, [] { shared<int>(0)[thread()] = 1; }),
              HasSubstr("thread 31: a write of 4 bytes of shared memory out of bounds: at byte 124 of 124"));
  EXPECT_THAT(fault([] { shared<int>(0)[thread() - 1] = 1; }), HasSubstr("at byte -4 of 4096"));
}

TEST_F(EmulatedMemory, FindsUninitialisedSharedMemory) {
  const Global<float> x = floats_.data();
  EXPECT_EQ(fault([=] {
              shared<float>(0)[thread()] = 1;
              x[thread()] = shared<float>(0)[thread()];
            }),
            "");
  EXPECT_THAT(fault([=] { x[thread()] = shared<float>(0)[thread()]; }),
              HasSubstr("it reads byte 0 of shared memory, which is uninitialised"));
  // Each block begins with new memory. A word of which half is written is not written.
  EXPECT_THAT(fault({.x = 2, .threads = 1, .shared_bytes = 4},
                    [=] {
                      if (block_x() == 0) shared<float>(0)[0] = 1;
                      x[block_x()] = shared<float>(0)[0];
                    }),
              HasSubstr("block (1, 0, 0), thread 0: it reads byte 0 of shared memory, which is uninitialised"));
  EXPECT_THAT(fault([=] {
                shared<uint16_t>(0)[2 * thread()] = 1;
                x[thread()] = shared<float>(0)[thread()];
              }),
              HasSubstr("it reads byte 2 of shared memory, which is uninitialised"));
}

TEST_F(EmulatedMemory, FindsReadsBeforeTheBarrier) {
  const Global<float> x = floats_.data();
  const auto reverse = [=](auto&& sync) {
    return [=] {
      shared<float>(0)[thread()] = static_cast<float>(thread());
      sync();
      x[thread()] = shared<float>(0)[63 - thread()];
    };
  };
  EXPECT_EQ(fault(reverse([] { sync_block(); })), "");
  EXPECT_EQ(fault(reverse([] { sync_part(3, 64); })), "");
  EXPECT_THAT(fault(reverse([] {})), HasSubstr("uninitialised"));  // nobody has written it yet
  EXPECT_THAT(fault(reverse([] { sync_warp(); })), ::testing::Not(""));
  EXPECT_THAT(fault(reverse([] { sync_part(1 + warp(), 32); })), ::testing::Not(""));
}

TEST_F(EmulatedMemory, FindsRacesBetweenWarps) {
  // The second warp comes after the first in the emulation: the race is found although it reads the right value.
  const Global<float> x = floats_.data();
  const auto pass = [=](bool sync) {
    return [=] {
      if (warp() == 0) shared<float>(0)[thread()] = 1;
      if (sync) sync_block();
      if (warp() == 1) x[thread()] = shared<float>(0)[thread() - 32];
    };
  };
  EXPECT_EQ(fault(pass(true)), "");
  EXPECT_THAT(
      fault(pass(false)),
      HasSubstr("thread 32: a race: it reads byte 0 of shared memory, which thread 0 wrote, with no barrier between"));
}

TEST_F(EmulatedMemory, FindsRacesBetweenLanes) {
  const Global<float> x = floats_.data();
  const auto pass = [=](bool sync) {
    return [=] {
      if (lane() == 0) shared<float>(0)[warp()] = 1;
      const float other = shuffle(1.0f, 0);  // does not order accesses
      if (sync) sync_warp();
      x[thread()] = other + shared<float>(0)[warp()];
    };
  };
  EXPECT_EQ(fault(pass(true)), "");
  EXPECT_THAT(
      fault(pass(false)),
      MatchesRegex(".*, thread 31, at or after emulated_memory_test.cc:[0-9]+: a race: it reads byte 0 of shared "
                   "memory, which thread 0 wrote, with no barrier between"));
}

TEST_F(EmulatedMemory, FindsWritesWhileOthersRead) {
  // All read, then one writes: the readers are one lane, several of a warp, or several warps.
  const Global<float> x = floats_.data();
  const auto overwrite = [=](int readers, int writer, bool sync) {
    return [=] {
      if (thread() == 0) shared<float>(0)[0] = 1;
      sync_block();
      if (thread() < readers) x[thread()] = shared<float>(0)[0];
      if (sync) sync_block();
      if (thread() == writer) shared<float>(0)[0] = 2;
    };
  };
  for (const int readers : {1, 2, 32, 33, 64}) {
    for (const int writer : {31, 40, 63}) {
      SCOPED_TRACE(std::to_string(readers) + " readers, writer " + std::to_string(writer));
      EXPECT_EQ(fault(overwrite(readers, writer, true)), "");
      EXPECT_THAT(
          fault(overwrite(readers, writer, false)),
          MatchesRegex(".*a race: it (writes byte 0 of shared memory, which thread [0-9]+ read|reads byte 0 of shared "
                       "memory, which thread [0-9]+ wrote), with no barrier between"));
    }
  }
  EXPECT_EQ(fault(overwrite(1, 0, false)), "");  // its own value
}

TEST_F(EmulatedMemory, KnowsBytesFromWords) {
  const Global<float> x = floats_.data();
  // Each thread writes a byte of its own; then words are read.
  EXPECT_EQ(fault([=] {
              shared<uint8_t>(0)[thread()] = 1;
              sync_block();
              if (thread() < 16) x[thread()] = static_cast<float>(static_cast<uint32_t>(shared<uint32_t>(0)[thread()]));
            }),
            "");
  EXPECT_THAT(fault([=] { shared<uint8_t>(0)[thread() / 2] = 1; }),
              HasSubstr("thread 1: a race: it writes byte 0 of shared memory, which thread 0 wrote"));
  EXPECT_THAT(fault([=] {
                shared<uint8_t>(0)[thread()] = 1;
                sync_block();
                if (thread() == 5) shared<uint8_t>(0)[6] = 2;
                if (thread() == 40) x[0] = static_cast<float>(static_cast<uint32_t>(shared<uint32_t>(0)[1]));
              }),
              HasSubstr("thread 5, at or after"));
}

TEST_F(EmulatedMemory, OrdersPartsOfABlock) {
  // Warp 0 writes and meets warp 1, which meets warp 2: so warp 2 may read. Warp 3 has met nobody.
  const Global<float> x = floats_.data();
  const auto chain = [=](int reader) {
    return [=] {
      if (warp() == 0) shared<float>(0)[lane()] = 1;
      if (warp() <= 1) sync_part(1, 64);
      if (warp() == 1 || warp() == 2) sync_part(2, 64);
      if (warp() == reader) x[lane()] = shared<float>(0)[lane()];
    };
  };
  const LaunchShape shape{.threads = 128, .shared_bytes = 128};
  EXPECT_EQ(fault(shape, chain(1)), "");
  EXPECT_EQ(fault(shape, chain(2)), "");
  EXPECT_THAT(fault(shape, chain(3)),
              HasSubstr("thread 96: a race: it reads byte 0 of shared memory, which thread 0 wrote"));
}

TEST_F(EmulatedMemory, FindsUnfinishedCopies) {
  const Global<float> x = floats_.data();
  // Copies one value in each of two groups, and reads that of the first.
  const auto copies = [=](auto&& wait, auto&& sync, int reads) {
    return [=] {
      copy_async<4>(shared<float>(0) + thread(), x);
      commit_copies();
      copy_async<4>(shared<float>(1024) + thread(), x);
      commit_copies();
      wait();
      sync();
      static_cast<void>(static_cast<float>(shared<float>(static_cast<size_t>(reads))[63 - thread()]));
    };
  };
  const auto sync = [] { sync_block(); };
  EXPECT_EQ(fault(copies([] { wait_copies<1>(); }, sync, 0)), "");
  EXPECT_EQ(fault(copies([] { wait_copies<0>(); }, sync, 1024)), "");
  EXPECT_THAT(fault(copies([] {}, sync, 0)), HasSubstr("thread 63, at or after"));
  EXPECT_THAT(fault(copies([] { wait_copies<2>(); }, sync, 0)),
              HasSubstr("to which thread 0 copies: it must call wait_copies()"));
  EXPECT_THAT(fault(copies([] { wait_copies<1>(); }, sync, 1024)),
              HasSubstr("to which thread 0 copies: it must call wait_copies()"));
  EXPECT_THAT(fault(copies([] { wait_copies<0>(); }, [] { sync_warp(); }, 0)), HasSubstr("uninitialised"));
  // A buffer is filled again, while other threads may still read it.
  const auto refill = [=](bool sync) {
    return [=] {
      for (int i = 0; i < 2; ++i) {
        copy_async<4>(shared<float>(0) + thread(), x);
        commit_copies();
        wait_copies<0>();
        sync_block();
        static_cast<void>(static_cast<float>(shared<float>(0)[63 - thread()]));
        if (sync) sync_block();
      }
    };
  };
  EXPECT_EQ(fault(refill(true)), "");
  EXPECT_THAT(fault(refill(false)), HasSubstr("a race: it reads byte 252 of shared memory, which thread 63 wrote"));
  // Zeros are copied if the source is not valid, wherever it is.
  EXPECT_EQ(fault([=] {
              copy_async<16>(shared<float>(0) + 4 * thread(), x + 1000, false);
              commit_copies();
              wait_copies<0>();
              x[thread()] = shared<float>(0)[4 * thread() + 3];
            }),
            "");
  EXPECT_EQ(floats_.values(), std::vector<float>(100));
}

TEST_F(EmulatedMemory, FindsRacesBetweenBlocks) {
  const Global<float> x = floats_.data();
  const LaunchShape shape{.x = 3, .y = 2, .threads = 4};
  EXPECT_EQ(fault(shape, [=] { x[(block_y() * 3 + block_x()) * 4 + thread()] += 1; }), "");
  EXPECT_THAT(
      fault(shape, [=] { x[block_x() * 4 + thread()] += 1; }),
      MatchesRegex("kernel planted, block \\(0, 1, 0\\), thread 0: a race: it reads what block number 0 of this launch "
                   "wrote: address 0x[0-9a-f]+, byte 0 of an allocation of 400 bytes"));
  EXPECT_THAT(fault(shape, [=] { x[thread()] = 1; }), HasSubstr("it writes what block number 0 of this launch wrote"));
  EXPECT_THAT(fault(shape,
                    [=] {
                      static_cast<void>(static_cast<float>(x[0]));
                      if (block_x() == 2 && block_y() == 1) x[0] = 1;
                    }),
              HasSubstr("it writes what several other blocks of this launch read"));
  // Words of which blocks write different bytes; a later launch may use all.
  const Global<uint8_t> bytes = cast<uint8_t>(x);
  EXPECT_EQ(fault(shape, [=] { bytes[(block_y() * 3 + block_x()) * 3 + thread() % 3] = 1; }), "");
  EXPECT_THAT(fault(shape, [=] { bytes[block_x() * 3 + thread()] = 1; }), HasSubstr("a race"));
  EXPECT_EQ(fault({.threads = 4}, [=] { x[thread()] += 1; }), "");
}

TEST_F(EmulatedMemory, FindsRacesInGlobalMemoryOfABlock) {
  const Global<float> x = floats_.data();
  const auto pass = [=](bool sync) {
    return [=] {
      x[thread()] = 1;
      if (sync) sync_block();
      if (warp() == 1) x[thread()] = x[thread() - 32];
    };
  };
  EXPECT_EQ(fault(pass(true)), "");
  EXPECT_THAT(fault(pass(false)),
              HasSubstr("a race: it reads what thread 0 wrote, with no barrier between: address 0x"));
  EXPECT_THAT(fault([=] { x[0] = 1; }), HasSubstr("a race: it writes what thread 0 wrote, with no barrier between"));
  const Global<uint8_t> bytes = cast<uint8_t>(x);
  EXPECT_EQ(fault([=] {
              bytes[thread()] = 1;
              bytes[thread()] = static_cast<uint8_t>(bytes[thread()] + 1);
            }),
            "");
}

TEST_F(EmulatedMemory, FindsUseByTheHostBeforeItWaits) {
  const Global<float> x = floats_.data();
  const auto write = [=] { x[thread()] = 1; };
  const auto read = [=] { static_cast<void>(static_cast<float>(x[thread()])); };
  const Launch writes = make_launch({.threads = 10}, planted(write));
  const Launch reads = make_launch({.threads = 20}, planted(read));
  const auto upload = [&](size_t at) {
    const float v = 0;
    device_.upload(reinterpret_cast<std::byte*>(floats_.data() + at), reinterpret_cast<const std::byte*>(&v), sizeof v);
  };
  device_.run({&writes, 1});
  EXPECT_THROW(floats_.values(), DeviceFault);
  device_.run({&reads, 1});
  EXPECT_THROW(floats_.values(), DeviceFault);  // written two launches ago
  EXPECT_THROW(upload(19), DeviceFault);        // read
  EXPECT_NO_THROW(upload(20));
  device_.finish();
  EXPECT_NO_THROW(upload(19));
  EXPECT_EQ(floats_.values()[9], 1);
}

TEST_F(EmulatedMemory, FindsUseByTheHostAfterTheMarkThatItWaitedFor) {
  const Global<float> x = floats_.data();
  const Launch writes = make_launch({.threads = 10}, planted([=] { x[thread()] = 1; }));
  const Launch reads =
      make_launch({.threads = 20}, planted([=] { static_cast<void>(static_cast<float>(x[thread()])); }));
  const Launch writes_again = make_launch({.threads = 5}, planted([=] { x[thread()] = 2; }));
  const auto upload = [&](size_t at) {
    const float v = 0;
    device_.upload(reinterpret_cast<std::byte*>(floats_.data() + at), reinterpret_cast<const std::byte*>(&v), sizeof v);
  };
  const auto mark = device_.make_mark();
  device_.run({&writes, 1});
  device_.mark(*mark);
  device_.run({&reads, 1});
  EXPECT_THROW(floats_.values(), DeviceFault);
  device_.wait(*mark);
  EXPECT_EQ(floats_.values()[9], 1);
  EXPECT_THROW(upload(19), DeviceFault);  // read after the mark
  EXPECT_NO_THROW(upload(20));
  device_.run({&writes_again, 1});
  device_.wait(*mark);
  EXPECT_THROW(floats_.values(), DeviceFault);
  device_.finish();
  EXPECT_EQ(floats_.values()[4], 2);
}

TEST_F(EmulatedMemory, FindsThatTheHostChangesWhatIsUploaded) {
  auto* const to = reinterpret_cast<std::byte*>(floats_.data());
  std::byte* const from = device_.allocate_host(8);
  std::fill_n(from, 8, std::byte{1});
  const auto mark = device_.make_mark();
  device_.upload_in_order(to, from, 4);
  device_.mark(*mark);
  device_.upload_in_order(to, from + 4, 4);
  from[7] = std::byte{2};
  EXPECT_NO_THROW(device_.wait(*mark));
  EXPECT_THROW(device_.finish(), DeviceFault);
  from[0] = std::byte{2};  // has been waited for
  EXPECT_NO_THROW(device_.finish());
  device_.free_host(from);
}

TEST_F(EmulatedMemory, ChecksOnlyBoundsIfAsked) {
  const auto device = open(1);
  const OnDevice<float> memory(*device, size_t{100});
  const Global<float> x = memory.data();
  EXPECT_EQ(fault_of(*device, {.x = 2, .threads = 64, .shared_bytes = 256},
                     [=] { x[0] = static_cast<float>(shared<float>(0)[63 - thread()]); }),
            "");
  EXPECT_THAT(fault_of(*device, {.threads = 64}, [=] { x[2 * thread()] = 1; }), HasSubstr("out of bounds"));
}

}  // namespace
}  // namespace quire::cuda
