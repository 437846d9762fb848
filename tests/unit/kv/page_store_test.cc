#include "kv/page_store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "unit/kv/allocations.h"
#include "unit/kv/page_samples.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using Tier = PageStore::Tier;

constexpr size_t kStoredPageBytes = 20000;

PageStoreOptions in_memory(size_t pages) {
  PageStoreOptions options;
  options.page_bytes = kStoredPageBytes;
  options.host_bytes = pages * kStoredPageBytes;
  return options;
}

PageStoreOptions on_disk(const TemporaryFolder& folder, size_t host_pages = 0, size_t disk_bytes = 100'000'000) {
  PageStoreOptions options = in_memory(host_pages);
  options.directory = folder.path().string();
  options.disk_bytes = disk_bytes;
  options.identity = "model";
  return options;
}

void store_page(PageStore& store, int number) {
  store.put(sample_key(number), fill_with(sample_page(number, kStoredPageBytes)));
}

// Loads and waits. A page that arrives must be the right one.
bool load(PageStore& store, int number) {
  Bytes page(kStoredPageBytes);
  const auto copy = [&](std::span<const std::byte> from) { std::ranges::copy(from, page.begin()); };
  if (!store.use_host_page(sample_key(number), copy)) {
    if (!store.load(sample_key(number), page, 7)) return false;
    store.wait_completed();
    std::vector<PageStore::Completed> done;
    store.completed(done);
    EXPECT_EQ(done.size(), 1u);
    if (done.empty() || !done[0].ok) return false;
    EXPECT_EQ(done[0].ticket, 7u);
  }
  EXPECT_EQ(page, sample_page(number, kStoredPageBytes)) << "wrong content";
  return true;
}

TEST(PageStore, HoldsPagesInMemory) {
  PageStore store(in_memory(2));
  EXPECT_EQ(store.find(sample_key(1)), Tier::kNone);
  store_page(store, 1);
  store_page(store, 2);
  EXPECT_EQ(store.find(sample_key(1)), Tier::kHost);
  store_page(store, 3);  // 2 goes
  EXPECT_TRUE(load(store, 1));
  EXPECT_FALSE(load(store, 2));
  EXPECT_TRUE(load(store, 3));
  EXPECT_EQ(store.stats().host_pages, 2u);
  EXPECT_EQ(store.stats().dropped, 0u);
}

TEST(PageStore, ReportsTheMemoryItAllocates) {
  EXPECT_EQ(PageStore::memory_bytes(in_memory(0)), 0u);
  EXPECT_EQ(PageStore::memory_bytes(in_memory(2)), 2 * kStoredPageBytes);
  const TemporaryFolder folder;
  PageStoreOptions disk = on_disk(folder, 3);
  disk.write_behind_bytes = 5 * kStoredPageBytes + 1;
  EXPECT_EQ(PageStore::memory_bytes(disk), (3 + 5) * kStoredPageBytes);
  disk.disk_bytes = kStoredPageBytes;  // too little for a page, so there is no disk tier
  EXPECT_EQ(PageStore::memory_bytes(disk), 3 * kStoredPageBytes);
}

TEST(PageStore, MayHaveNoCapacity) {
  PageStore store(in_memory(0));
  store_page(store, 1);
  EXPECT_EQ(store.find(sample_key(1)), Tier::kNone);
  store.flush();
  store.wait_completed();
}

TEST(PageStore, KeepsPagesAcrossARestart) {
  const TemporaryFolder folder;
  {
    PageStore store(on_disk(folder));
    for (int i = 0; i < 20; ++i) store_page(store, i);
  }  // writes queued pages
  PageStore store(on_disk(folder));
  EXPECT_EQ(store.stats().disk_pages, 20u);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(store.find(sample_key(i)), Tier::kDisk);
    EXPECT_TRUE(load(store, i));
  }
  EXPECT_FALSE(load(store, 20));
  EXPECT_GT(store.disk_read_seconds_per_page(), 0);
}

TEST(PageStore, ReturnsAQueuedPageWithoutWaiting) {
  const TemporaryFolder folder;
  PageStore store(on_disk(folder, 1));
  for (int i = 0; i < 50; ++i) {
    store_page(store, i);
    EXPECT_TRUE(store.use_host_page(sample_key(i), [&](std::span<const std::byte> page) {
      EXPECT_TRUE(std::ranges::equal(page, sample_page(i, kStoredPageBytes)));
    }));
  }
  store.flush();
  EXPECT_EQ(store.find(sample_key(0)), Tier::kDisk);
  EXPECT_EQ(store.find(sample_key(49)), Tier::kHost);
}

TEST(PageStore, CompletesLoadsInOrder) {
  const TemporaryFolder folder;
  PageStore store(on_disk(folder));
  for (int i = 0; i < 30; ++i) store_page(store, i);
  store.flush();
  std::vector<Bytes> pages(30, Bytes(kStoredPageBytes));
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(store.load(sample_key(i), pages[i], 100 + i));
  std::vector<PageStore::Completed> all, some;
  while (all.size() < 30) {
    store.wait_completed();
    store.completed(some);
    all.insert(all.end(), some.begin(), some.end());
  }
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(all[i], (PageStore::Completed{100ull + i, true}));
    EXPECT_EQ(pages[i], sample_page(i, kStoredPageBytes));
  }
  store.completed(some);
  EXPECT_TRUE(some.empty());
  store.wait_completed();  // nothing pending: returns
}

TEST(PageStore, ADamagedFileIsAMiss) {
  const TemporaryFolder folder;
  std::vector<std::string> warnings;
  PageStoreOptions options = on_disk(folder);
  options.warn = [&](const std::string& message) { warnings.push_back(message); };
  PageStore store(options);
  store_page(store, 1);
  store.flush();
  Bytes content = file_content(folder.files().at(0));
  content[content.size() / 2] ^= std::byte{1};
  write_content(folder.files().at(0), content);
  EXPECT_EQ(store.find(sample_key(1)), Tier::kDisk);
  EXPECT_FALSE(load(store, 1));
  EXPECT_EQ(store.find(sample_key(1)), Tier::kNone);
  EXPECT_EQ(store.stats().damaged, 1u);
  EXPECT_EQ(warnings.size(), 1u);
  store_page(store, 1);
  store.flush();
  EXPECT_TRUE(load(store, 1));
}

// A caller that waits for a page can do other things while the disk hangs.
TEST(PageStore, WaitsForALoadNoLongerThanAsked) {
  const TemporaryFolder folder;
  std::promise<void> answers;
  PageStoreOptions options = on_disk(folder);
  options.warn = [&](const std::string&) { answers.get_future().wait(); };  // reading hangs
  PageStore store(options);
  store_page(store, 1);
  store.flush();
  write_content(folder.files().at(0), Bytes(file_content(folder.files().at(0)).size()));
  Bytes page(kStoredPageBytes);
  ASSERT_TRUE(store.load(sample_key(1), page, 7));
  store.wait_completed(std::chrono::milliseconds(5));
  std::vector<PageStore::Completed> done;
  store.completed(done);
  EXPECT_TRUE(done.empty());
  answers.set_value();
  store.wait_completed();
  store.completed(done);
  EXPECT_EQ(done, (std::vector<PageStore::Completed>{{7, false}}));
}

TEST(PageStore, MissesAPageIfItsThreadHasNoMemory) {
  const TemporaryFolder folder;
  PageStoreOptions options = on_disk(folder);
  options.rescan = std::chrono::milliseconds(1);
  PageStore store(options);
  store_page(store, 1);
  store.flush();
  {
    const NoMemoryForOthers failing;
    EXPECT_FALSE(load(store, 1));
    store_page(store, 2);
    store.flush();
    write_content(folder / "new", Bytes(1));  // so that the folder is looked through
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(store.stats().write_failures, 1u);
  EXPECT_TRUE(load(store, 1));
}

// A slow moment must not prevent reading for ever.
TEST(PageStore, ForgetsThatTheDiskWasSlow) {
  const TemporaryFolder folder;
  PageStoreOptions options = on_disk(folder);
  options.page_bytes = 100;  // opening the file alone takes longer than the assumed time
  options.rescan = std::chrono::milliseconds(1);
  PageStore store(options);
  Bytes page = sample_page(1, 100);
  store.put(sample_key(1), fill_with(page));
  store.flush();
  const double assumed = store.disk_read_seconds_per_page();
  std::vector<PageStore::Completed> done;
  for (uint64_t i = 0; i < 50; ++i) {
    ASSERT_TRUE(store.load(sample_key(1), page, i));
    store.wait_completed();
    store.completed(done);
    ASSERT_EQ(done, (std::vector<PageStore::Completed>{{i, true}}));
  }
  const double measured = store.disk_read_seconds_per_page();
  ASSERT_GT(measured, assumed);
  for (int i = 0; i < 2000 && store.disk_read_seconds_per_page() > 1.1 * assumed; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_LE(store.disk_read_seconds_per_page(), 1.1 * assumed);
}

TEST(PageStore, DropsPagesRatherThanWait) {
  const TemporaryFolder folder;
  PageStoreOptions options = on_disk(folder);
  options.write_behind_bytes = 2 * kStoredPageBytes;
  PageStore store(options);
  const Bytes page = sample_page(0, kStoredPageBytes);  // made once: puts come faster than a file can be written
  for (int i = 0; i < 500; ++i) store.put(sample_key(i), fill_with(page));
  store.flush();
  const PageStore::Stats stats = store.stats();
  EXPECT_GT(stats.dropped, 0u);
  EXPECT_GT(stats.disk_pages, 0u);
  EXPECT_EQ(stats.dropped + stats.disk_pages, 500u);
  EXPECT_EQ(folder.files().size(), stats.disk_pages);
}

TEST(PageStore, WritesADroppedPageWhenItIsPutAgain) {
  const TemporaryFolder folder;
  PageStoreOptions options = on_disk(folder, 500);
  options.write_behind_bytes = 2 * kStoredPageBytes;
  PageStore store(options);
  for (int round = 0; round < 1000 && store.stats().disk_pages < 100; ++round) {
    for (int i = 0; i < 100; ++i) store_page(store, i);
    store.flush();
  }
  EXPECT_EQ(store.stats().disk_pages, 100u);
  EXPECT_EQ(store.stats().host_pages, 100u);
}

TEST(PageStore, KeepsTheFolderBelowItsLimit) {
  const TemporaryFolder folder;
  PageStore store(on_disk(folder, 0, 10 * 20480));
  for (int i = 0; i < 100; ++i) {
    store_page(store, i);
    store.flush();
    EXPECT_LE(folder.file_bytes(), 10u * 20480);
  }
  EXPECT_EQ(store.stats().disk_pages, 10u);
  EXPECT_TRUE(load(store, 99));
  EXPECT_FALSE(load(store, 0));
}

TEST(PageStore, WarnsIfTheLimitIsBelowTwoPages) {
  const TemporaryFolder folder;
  std::vector<std::string> warnings;
  PageStoreOptions options = on_disk(folder, 1, kStoredPageBytes);
  options.warn = [&](const std::string& message) { warnings.push_back(message); };
  PageStore store(options);
  EXPECT_EQ(warnings.size(), 1u);
  store_page(store, 1);
  store.flush();
  EXPECT_TRUE(load(store, 1));
  EXPECT_TRUE(folder.files().empty());
}

TEST(PageStore, FindsPagesOfAnotherProcess) {
  const TemporaryFolder folder;
  PageStoreOptions options = on_disk(folder);
  options.rescan = std::chrono::milliseconds(10);
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();  // before this process has threads
  if (child == 0) {
    char byte;
    if (read(go[0], &byte, 1) != 1) _exit(1);
    {
      PageStore other(options);
      for (int i = 0; i < 10; ++i) store_page(other, i);
    }
    _exit(0);
  }
  PageStore store(options);
  ASSERT_EQ(write(go[1], "g", 1), 1);
  waitpid(child, nullptr, 0);
  close(go[0]);
  close(go[1]);
  for (int i = 0; i < 10; ++i) {
    for (int wait = 0; wait < 500 && store.find(sample_key(i)) == Tier::kNone; ++wait)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(load(store, i));
  }
}

TEST(PageStore, AllocatesNothingForItsCallers) {
  const TemporaryFolder folder;
  PageStore store(on_disk(folder, 5, 40 * 20480));
  std::vector<Bytes> pages;
  for (int i = 0; i < 100; ++i) pages.push_back(sample_page(i, kStoredPageBytes));
  std::vector<PageStore::Completed> done;
  done.reserve(1000);
  uint64_t before = 0;
  int read = 0;
  for (int round = 0; round < 4; ++round) {
    if (round == 1) before = allocations();  // the first warms up
    for (int i = 0; i < 100; ++i) store.put(sample_key(i), fill_with(pages[i]));
    store.flush();
    for (int i = 0; i < 100; ++i) {
      const auto copy = [&](std::span<const std::byte> from) { std::ranges::copy(from, pages[i].begin()); };
      if (store.use_host_page(sample_key(i), std::ref(copy)) || !store.load(sample_key(i), pages[i], i)) continue;
      store.wait_completed();
      store.completed(done);
      read += done.size() == 1 && done[0].ok;
    }
  }
  EXPECT_EQ(allocations() - before, 0u);
  EXPECT_GT(read, 0);
}

// The destructor does not wait for a disk that hangs, and the memory that a hanging read writes to stays.
TEST(PageStore, LeavesAHangingDiskBehind) {
  const TemporaryFolder folder;
  struct Disk {
    std::promise<void> answers;
    std::mutex mutex;
    std::vector<std::string> warnings;
  };
  const auto disk = std::make_shared<Disk>();
  auto memory = std::make_shared<Bytes>(kStoredPageBytes);
  const std::weak_ptr<Bytes> watched = memory;
  const auto start = std::chrono::steady_clock::now();
  {
    PageStoreOptions options = on_disk(folder);
    options.patience = std::chrono::milliseconds(50);
    options.warn = [disk, hangs = disk->answers.get_future().share()](const std::string& message) {
      const bool damaged = message.find("checksum") != std::string::npos;
      {
        const std::lock_guard lock(disk->mutex);
        disk->warnings.push_back(message);
      }
      if (damaged) hangs.wait();
    };
    PageStore store(options);
    store_page(store, 1);
    store.flush();
    Bytes content = file_content(folder.files().at(0));
    content.back() ^= std::byte{1};
    write_content(folder.files().at(0), content);
    store.keep_alive(memory);
    ASSERT_TRUE(store.load(sample_key(1), *memory, 7));
    store.wait_completed(std::chrono::milliseconds(100));  // it hangs
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  {
    const std::lock_guard lock(disk->mutex);
    ASSERT_EQ(disk->warnings.size(), 2u);
    EXPECT_NE(disk->warnings[1].find("does not respond"), std::string::npos) << disk->warnings[1];
  }
  memory.reset();
  EXPECT_FALSE(watched.expired()) << "the hanging read may still write to it";
  disk->answers.set_value();
  for (int i = 0; i < 1000 && !watched.expired(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(watched.expired()) << "the thread has ended";
}

TEST(PageStore, GivesUpPendingLoadsAtItsEnd) {
  const TemporaryFolder folder;
  {
    PageStore store(on_disk(folder));
    for (int i = 0; i < 100; ++i) store_page(store, i);
  }
  for (int round = 0; round < 20; ++round) {
    std::vector<Bytes> pages(100, Bytes(kStoredPageBytes));
    {
      PageStore store(on_disk(folder));
      for (int i = 0; i < 100; ++i) store.load(sample_key(i), pages[i], i);
    }
    pages.clear();  // AddressSanitizer notices if the store still writes to them
  }
}

// A child process puts pages and reports which are written; it is killed at a random moment.
TEST(PageStore, SurvivesFiftyKills) {
  const TemporaryFolder folder;
  std::mt19937 random(5);
  int next = 0, found = 0;
  for (int round = 0; round < 50; ++round) {
    int said[2];
    ASSERT_EQ(pipe(said), 0);
    const pid_t child = fork();
    if (child == 0) {
      PageStore store(on_disk(folder, round % 2 * 4));
      for (int i = next;; ++i) {
        store_page(store, i);
        if (i % 5 != 4) continue;
        store.flush();
        if (write(said[1], &i, sizeof i) != sizeof i) _exit(1);
      }
    }
    close(said[1]);
    int written = next - 1;
    // Every other child lives to see a page written, however slow the machine is.
    const bool spoke = round % 4 >= 2 || read(said[0], &written, sizeof written) == sizeof written;
    usleep(static_cast<useconds_t>(random() % 15000));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    ASSERT_TRUE(spoke) << "the child failed";
    for (int i; read(said[0], &i, sizeof i) == sizeof i;) written = i;
    close(said[0]);

    PageStore store(on_disk(folder));
    EXPECT_EQ(store.stats().damaged, 0u);
    for (const auto& file : folder.files()) EXPECT_EQ(file.extension(), ".page") << file;
    for (int i = next; i <= written; ++i, ++found) EXPECT_TRUE(load(store, i)) << "page " << i << " was written";
    for (int i = written + 1; i < written + 50; ++i) load(store, i);  // gone or right
    EXPECT_EQ(store.stats().damaged, 0u);
    next = written + 1;
    if (next > 3000) {  // the folder holds some 4,800
      for (const auto& file : folder.files()) fs::remove(file);
    }
  }
  EXPECT_GE(found, 25 * 5);
}

TEST(PageStore, ServesManyThreads) {
  const TemporaryFolder folder;
  PageStoreOptions options = on_disk(folder, 10, 60 * 20480);
  options.write_behind_bytes = 8 * kStoredPageBytes;
  options.rescan = std::chrono::milliseconds(1);
  PageStore store(options), beside(options);
  std::vector<std::thread> threads;
  std::atomic<int> hits = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      PageStore& mine = t == 3 ? beside : store;
      for (int i = 0; i < 300; ++i) {
        const int number = static_cast<int>(random() % 100);
        switch (random() % 4) {
          case 0:
            store_page(mine, number);
            break;
          case 1:
            mine.find(sample_key(number));
            break;
          case 2:
            mine.stats();
            break;
          default:  // one thread per store collects completions
            if (t >= 2) hits += load(mine, number);
        }
      }
    });
  for (auto& thread : threads) thread.join();
  store.flush();
  EXPECT_GT(hits, 0);
  EXPECT_EQ(store.stats().damaged + beside.stats().damaged, 0u);
}

}  // namespace
}  // namespace quire
