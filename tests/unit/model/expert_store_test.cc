#include "model/packing/expert_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "base/error.h"
#include "error_of.h"
#include "ops/cpu/cpu_backend.h"
#include "unit/model/expert_packs.h"

namespace quire {
namespace {

class ExpertStores : public testing::ExpertPacks {
 protected:
  std::unique_ptr<ExpertStore> store(size_t slots) {
    auto file = write();
    EXPECT_TRUE(file);
    return std::make_unique<ExpertStore>(std::move(*file), backend_, slots);
  }
  // Takes these experts, and expects each once with its bytes, as many as there are slots at a time.
  void take(ExpertStore& store, const std::vector<int32_t>& experts) {
    store.begin(experts);
    std::vector<int> given(experts.size());
    for (auto ready = store.next(); !ready.empty(); ready = store.next()) {
      EXPECT_LE(ready.size(), store.slots());
      for (const ExpertSource::Ready& one : ready) {
        ++given[static_cast<size_t>(one.index)];
        const auto& bytes = experts_[static_cast<size_t>(experts[static_cast<size_t>(one.index)])];
        EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), one.data));
      }
    }
    EXPECT_EQ(given, std::vector<int>(experts.size(), 1));
  }
  ExpertReads reads_of(ExpertStore& store, const std::vector<int32_t>& experts) {
    store.take_reads();
    take(store, experts);
    return store.take_reads();
  }

  Team team_{1};
  CpuBackend backend_{"auto", team_};
};

TEST_F(ExpertStores, GiveEachChosenExpertOnce) {
  std::mt19937 random(1);
  for (size_t slots = 1; slots <= experts_.size() + 1; ++slots) {
    const auto store = this->store(slots);
    for (int round = 0; round < 200; ++round) {
      std::vector<int32_t> all(experts_.size());
      std::iota(all.begin(), all.end(), 0);
      std::shuffle(all.begin(), all.end(), random);
      all.resize(random() % (all.size() + 1));
      take(*store, all);
    }
  }
}

TEST_F(ExpertStores, ReadWhatIsNotInMemory) {
  const auto store = this->store(3);
  ExpertReads reads = reads_of(*store, {0, 1, 2});
  EXPECT_EQ(reads.hits, 0u);
  EXPECT_EQ(reads.reads, 3u);
  EXPECT_EQ(reads.bytes, sizes_[0] + sizes_[1] + sizes_[2]);
  EXPECT_GT(reads.read_seconds, 0);
  EXPECT_GT(reads.wait_seconds, 0);
  reads = reads_of(*store, {2, 0, 1});
  EXPECT_EQ(reads.hits, 3u);
  EXPECT_EQ(reads.reads, 0u);
  EXPECT_EQ(reads.wait_seconds, 0);
  EXPECT_EQ(store->memory_bytes(), 3u * 12288);
}

TEST_F(ExpertStores, KeepTheExpertsThatAreChosenOften) {
  const auto store = this->store(3);
  for (int32_t i = 0; i < 8; ++i) take(*store, {6, 7, i % 6});
  for (int32_t i = 0; i < 40; ++i) {
    const ExpertReads reads = reads_of(*store, {6, 7, i % 6});
    EXPECT_EQ(reads.hits, 2u) << i;
    EXPECT_EQ(reads.reads, 1u) << i;
  }
  // All experts of a prompt pass through the slots of the others.
  take(*store, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(reads_of(*store, {6, 7}).hits, 2u);
}

TEST_F(ExpertStores, ForgetWhatWasChosenLongAgo) {
  const auto store = this->store(2);
  for (int i = 0; i < 50; ++i) take(*store, {6, 7});
  for (int i = 0; i < 40 * static_cast<int>(experts_.size()); ++i) take(*store, {i % 2, 2 + i % 2});
  ExpertReads reads;
  for (int i = 0; i < 10; ++i) reads += reads_of(*store, {0});
  EXPECT_GE(reads.hits, 9u);
  EXPECT_EQ(reads_of(*store, {6, 7}).hits, 0u);
}

TEST_F(ExpertStores, GoOnAfterAnErrorOfTheFile) {
  for (const size_t slots : {size_t{1}, size_t{2}, size_t{8}}) {
    const auto store = this->store(slots);
    take(*store, {0});
    flip_bit(begin_of(3));
    flip_bit(begin_of(5));
    const std::vector<int32_t> experts{0, 1, 2, 3, 4, 5, 6};
    const std::string error = error_of([&] {
      store->begin(experts);
      while (!store->next().empty()) {
      }
    });
    EXPECT_NE(error.find(path().string()), std::string::npos) << error;
    EXPECT_NE(error.find("wrong checksum"), std::string::npos) << error;
    take(*store, {0, 1, 2, 4, 6, 7});
    flip_bit(begin_of(3));
    flip_bit(begin_of(5));
    take(*store, {5, 4, 3, 2, 1, 0});
  }
}

TEST_F(ExpertStores, EndWhileReadsAreUnderWay) {
  for (int i = 0; i < 20; ++i) {
    const auto store = this->store(4);
    store->begin(std::vector<int32_t>{0, 1, 2, 3, 4, 5});
    if (i % 2 == 1) store->next();
  }
}

}  // namespace
}  // namespace quire
