#include "base/working_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace quire {
namespace {

// Calls of the operators themselves, which no compiler leaves out.
void allocate_and_free(size_t bytes) { ::operator delete(::operator new(bytes)); }

TEST(WorkingMemory, CountsWhatIsAllocatedAndFreed) {
  WorkingMemory memory(1 << 20);
  const WorkingIn counted(&memory);
  auto kept = std::make_unique<std::vector<char>>(1000);
  EXPECT_GE(memory.held(), 1000u + sizeof(*kept));
  EXPECT_LE(memory.held(), 1200u);
  allocate_and_free(100'000);
  EXPECT_LE(memory.held(), 1200u);
  EXPECT_GE(memory.most(), 101'000u);
  kept.reset();
  EXPECT_EQ(memory.held(), 0u);
  EXPECT_FALSE(memory.exceeded());
}

TEST(WorkingMemory, ThrowsWhereItIsAskedBeyondTheLimit) {
  WorkingMemory memory(100'000);
  const WorkingIn counted(&memory);
  std::vector<std::string> texts;
  texts.reserve(200);
  const auto fill = [&] {
    for (;;) {
      check_work(1000);
      texts.emplace_back(983, 'x');  // 1000 bytes, with the allocator's
    }
  };
  EXPECT_THROW(fill(), WorkingMemoryExceeded);
  EXPECT_LE(memory.held(), 100'000u);
  EXPECT_GT(memory.held(), 98'000u);
  EXPECT_TRUE(memory.exceeded());
  allocate_and_free(1 << 20);  // a destructor's, which must not throw
  texts.resize(texts.size() - 10);
  check_work(1000);  // what is freed can be used again
  EXPECT_THROW(check_work(1 << 20), std::bad_alloc);
  EXPECT_THROW(check_work(SIZE_MAX), std::bad_alloc);
  EXPECT_THROW(fill(), WorkingMemoryExceeded);
}

TEST(WorkingMemory, ForeseesTheGrowthOfVectors) {
  WorkingMemory memory(100'000);
  const WorkingIn counted(&memory);
  std::vector<uint32_t> numbers;
  const auto fill = [&] {
    for (;;) {
      check_growth(numbers);
      numbers.push_back(1);
    }
  };
  EXPECT_THROW(fill(), WorkingMemoryExceeded);
  EXPECT_EQ(numbers.size(), 16'384u);  // the next vector would have 131,072 bytes
  EXPECT_LE(memory.most(), 100'000u);
}

TEST(WorkingMemory, FreeingWhatWasThereBeforeMakesRoom) {
  auto before = std::make_unique<std::vector<char>>(500'000);
  WorkingMemory memory(100'000);
  const WorkingIn counted(&memory);
  before.reset();
  EXPECT_EQ(memory.held(), 0u);
  check_work(550'000);
  EXPECT_THROW(check_work(700'000), WorkingMemoryExceeded);
}

TEST(WorkingMemory, ConcernsOneThreadAndOnlyWhileItWorks) {
  WorkingMemory memory(10'000);
  {
    const WorkingIn counted(&memory);
    std::thread([] {
      allocate_and_free(100'000);
      check_work(100'000);
    }).join();
    {
      const WorkingIn uncounted(nullptr);
      allocate_and_free(100'000);
      check_work(100'000);
    }
    EXPECT_LE(memory.most(), 10'000u);
    EXPECT_THROW(check_work(100'000), WorkingMemoryExceeded);
  }
  check_work(100'000);
}

TEST(WorkingMemory, SaysWhatTheWorkWasDoing) {
  note_work("nothing");  // without a limit
  WorkingMemory memory(10'000);
  EXPECT_EQ(memory.doing(), "");
  const WorkingIn counted(&memory);
  note_work("reading part {}", 3);
  EXPECT_EQ(memory.doing(), "reading part 3");
  note_work("{}", std::string(1000, 'x'));
  EXPECT_EQ(memory.doing(), std::string(160, 'x'));
}

}  // namespace
}  // namespace quire
