// DiskTier on a folder that several processes use at once.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <set>
#include <thread>

#include "kv/disk_tier.h"
#include "kv/page_store.h"
#include "unit/kv/page_samples.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSharedPageBytes = 5000;
constexpr uint64_t kSharedFileBytes = 8192;  // as counted towards the limit

class SharedFolderTest : public ::testing::Test {
 protected:
  DiskTierOptions options(uint64_t pages = 1000) {
    return {.directory = folder_.path().string(),
            .limit_bytes = pages * kSharedFileBytes,
            .page_bytes = kSharedPageBytes,
            .identity = "model",
            .warn = [this](const std::string& message) { warnings_.push_back(message); },
            .shared = true};
  }
  static bool write(DiskTier& tier, int number) {
    return tier.write(sample_key(number), sample_page(number, kSharedPageBytes));
  }
  static bool read(DiskTier& tier, int number) {
    Bytes page(kSharedPageBytes);
    const bool ok = tier.read(sample_key(number), page);
    EXPECT_TRUE(!ok || page == sample_page(number, kSharedPageBytes)) << "a wrong page";
    return ok;
  }
  static bool has(DiskTier& tier, int number) {
    const PageKey key = sample_key(number);
    tier.look_for({&key, 1});
    return tier.find(key);
  }
  std::string file_of(int number) const {
    return folder_ / text({page_file_identity("model", kSharedPageBytes), sample_key(number)});
  }
  // Writes and reads pages at random until it is killed, or `steps` are done. Exits with 1 if a page is wrong.
  [[noreturn]] void be_a_replica(unsigned seed, int steps, uint64_t limit_pages) {
    std::mt19937 random(seed);
    DiskTier tier(options(limit_pages));
    for (int i = 0; i < steps; ++i) {
      const int number = static_cast<int>(random() % 200);
      switch (random() % 4) {
        case 0:
          tier.refresh();
          break;
        case 1:
          read(tier, number);
          break;
        default:
          if (!has(tier, number)) write(tier, number);
      }
    }
    _exit(HasFailure() || tier.stats().damaged > 0 || !warnings_.empty() ? 1 : 0);
  }

  TemporaryFolder folder_;
  std::vector<std::string> warnings_;
};

TEST_F(SharedFolderTest, SeesAtOnceWhatOthersWriteAndRemove) {
  DiskTier one(options()), other(options());
  EXPECT_FALSE(has(other, 1));
  EXPECT_TRUE(write(one, 1));
  EXPECT_FALSE(other.find(sample_key(1))) << "it has not looked since";
  EXPECT_TRUE(has(other, 1));
  EXPECT_TRUE(read(other, 1));
  fs::remove(file_of(1));
  EXPECT_TRUE(one.find(sample_key(1)));
  EXPECT_FALSE(has(one, 1));
  EXPECT_FALSE(read(other, 1));
  EXPECT_TRUE(write(other, 1));
  EXPECT_TRUE(read(one, 1)) << "reading needs no question";
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(SharedFolderTest, DoesNotWriteWhatAnotherHasWritten) {
  DiskTier one(options()), other(options());
  EXPECT_TRUE(write(one, 1));
  EXPECT_TRUE(write(other, 1));
  EXPECT_EQ(one.stats().written_bytes, kSharedPageBytes);
  EXPECT_EQ(other.stats().written_bytes, 0u);
}

TEST_F(SharedFolderTest, CountsWhatItIsAskedFor) {
  DiskTier tier(options());
  EXPECT_TRUE(write(tier, 1));
  EXPECT_FALSE(has(tier, 2));
  EXPECT_TRUE(read(tier, 1));
  EXPECT_FALSE(read(tier, 2));
  const PageTier::Stats stats = tier.stats();
  EXPECT_EQ(stats.hits, 1u);
  EXPECT_EQ(stats.read_bytes, kSharedPageBytes);
  EXPECT_EQ(stats.misses, 2u);
  EXPECT_EQ(stats.errors, 0u);
}

// Nobody can tell a live writer's file from a dead one's by a lock on another machine, only by its age.
TEST_F(SharedFolderTest, RemovesAFileThatNobodyHasWrittenToForLong) {
  const std::string young = folder_ / "writing-0123456789abcdef.tmp", old = folder_ / "writing-fedcba9876543210.tmp";
  write_content(young, Bytes(100));
  write_content(old, Bytes(100));
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::minutes(11));
  DiskTier tier(options());
  EXPECT_TRUE(fs::exists(young));
  EXPECT_FALSE(fs::exists(old));
  fs::last_write_time(young, fs::file_time_type::clock::now() - std::chrono::minutes(11));
  tier.refresh();
  EXPECT_FALSE(fs::exists(young)) << "not only at the start";
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(SharedFolderTest, IgnoresFilesThatNfsKeepsForReaders) {
  write_content(folder_ / ".nfs000000000000002a00000001", Bytes(10));
  DiskTier tier(options());
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(SharedFolderTest, NeverReturnsADamagedPage) {
  DiskTier one(options()), other(options());
  EXPECT_TRUE(write(one, 1));
  Bytes content = file_content(file_of(1));
  content[3000] ^= std::byte{4};
  write_content(file_of(1), content);
  EXPECT_TRUE(has(other, 1));
  EXPECT_FALSE(read(other, 1));
  EXPECT_FALSE(fs::exists(file_of(1)));
  EXPECT_FALSE(has(one, 1));
  EXPECT_TRUE(write(one, 1));
  EXPECT_TRUE(read(other, 1));
}

TEST_F(SharedFolderTest, KeepsTheLimitTogether) {
  constexpr uint64_t kLimit = 320;  // pages; each process may exceed it by 1/32
  std::vector<std::unique_ptr<DiskTier>> tiers;
  for (int i = 0; i < 4; ++i) tiers.push_back(std::make_unique<DiskTier>(options(kLimit)));
  for (int i = 0; i < 2000; ++i) {
    write(*tiers[i % 4], i);
    if (i % 100 == 0) {
      EXPECT_LE(folder_.files().size(), kLimit + 3 * kLimit / 32);
    }
  }
  EXPECT_LE(folder_.files().size(), kLimit + 3 * kLimit / 32);
  EXPECT_GE(folder_.files().size(), kLimit / 2);
  EXPECT_TRUE(read(*tiers[0], 1999)) << "the newest are kept";
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(SharedFolderTest, ManyThreadsAndTiersEvictForEachOther) {
  std::vector<std::thread> threads;
  std::atomic<int> hits = 0, damaged = 0, errors = 0;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      DiskTierOptions mine = options(64);
      mine.warn = {};
      DiskTier tier(mine);
      std::mt19937 random(t);
      for (int i = 0; i < 400; ++i) {
        const int number = static_cast<int>(random() % 100);
        if (has(tier, number)) {
          hits += read(tier, number);
        } else {
          write(tier, number);
        }
        if (i % 20 == 0) tier.refresh();
      }
      damaged += static_cast<int>(tier.stats().damaged);
      errors += static_cast<int>(tier.stats().errors);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(hits, 0);
  EXPECT_EQ(damaged, 0);
  EXPECT_EQ(errors, 0);
  for (const fs::path& file : folder_.files()) EXPECT_EQ(file.extension(), ".page") << file;
}

// Replicas are killed at random moments, and new ones take their place. The others never see a wrong page.
TEST_F(SharedFolderTest, SurvivesReplicasThatAreKilled) {
  constexpr uint64_t kLimit = 96;
  std::mt19937 random(9);
  std::vector<pid_t> steady, killed;
  const auto start = [&](unsigned seed, int steps) {
    const pid_t child = fork();
    if (child == 0) be_a_replica(seed, steps, kLimit);
    return child;
  };
  for (unsigned i = 0; i < 2; ++i) steady.push_back(start(i, 1500));
  for (unsigned round = 0; round < 25; ++round) {
    const pid_t child = start(100 + round, 1 << 30);
    usleep(static_cast<useconds_t>(2000 + random() % 20000));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  for (const pid_t child : steady) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "a page was wrong or damaged, or something warned";
  }
  DiskTier tier(options(kLimit));
  EXPECT_EQ(tier.stats().damaged, 0u);
  EXPECT_LE(tier.stats().bytes, kLimit * kSharedFileBytes);
  int found = 0;
  for (int i = 0; i < 200; ++i) found += read(tier, i);
  EXPECT_EQ(static_cast<uint64_t>(found), tier.stats().pages);
  EXPECT_GT(found, 0);
  EXPECT_EQ(tier.stats().damaged, 0u);
}

// ---- the store above it ----

PageStoreOptions shared_store_options(const DiskTierOptions& tier) {
  PageStoreOptions o;
  o.page_bytes = tier.page_bytes;
  o.open_shared = [tier](Warn) { return std::make_unique<DiskTier>(tier); };
  return o;
}

TEST_F(SharedFolderTest, AStoreAsksAndThenKnows) {
  PageStore one(shared_store_options(options())), other(shared_store_options(options()));
  std::vector<PageKey> keys;
  for (int i = 0; i < 50; ++i) keys.push_back(sample_key(i));
  EXPECT_EQ(PageStore(PageStoreOptions{.page_bytes = 10}).ask(keys), 0u) << "nobody to ask";
  EXPECT_EQ(other.ask({}), 0u);
  const uint64_t before = other.ask(keys);
  ASSERT_GT(before, 0u);
  for (int i = 0; i < 50; i += 2) one.put(keys[i], fill_with(sample_page(i, kSharedPageBytes)));
  one.flush();
  const uint64_t question = other.ask(keys);
  EXPECT_GT(question, before);
  for (int i = 0; i < 1000 && !other.answered(question); ++i) other.wait_completed(std::chrono::milliseconds(10));
  ASSERT_TRUE(other.answered(question));
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(other.find(keys[i]), i % 2 == 0 ? PageStore::Tier::kDisk : PageStore::Tier::kNone) << i;
  EXPECT_EQ(other.ask(std::vector<PageKey>(100000, keys[0])), 0u) << "too much at once";
}

}  // namespace
}  // namespace quire
