#include "kv/disk_tier.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>

#include "base/error.h"
#include "unit/kv/allocations.h"
#include "unit/kv/page_samples.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr size_t kDiskPageBytes = 5000;
constexpr uint64_t kFileBytes = 8192;  // as counted towards the limit

class DiskTierTest : public ::testing::Test {
 protected:
  DiskTierOptions options(uint64_t pages = 100) {
    return {folder_.path().string(), pages * kFileBytes, kDiskPageBytes, "model",
            [this](const std::string& message) { warnings_.push_back(message); }};
  }
  static bool write(DiskTier& tier, int number) {
    return tier.write(sample_key(number), sample_page(number, kDiskPageBytes));
  }
  static bool read(DiskTier& tier, int number) {
    Bytes page(kDiskPageBytes);
    const bool ok = tier.read(sample_key(number), page);
    EXPECT_TRUE(!ok || page == sample_page(number, kDiskPageBytes)) << "a wrong page";
    return ok;
  }
  static bool has(DiskTier& tier, int number) { return tier.find(sample_key(number)); }
  fs::path file_of(int number) const {
    return folder_.path() / text({page_file_identity("model", kDiskPageBytes), sample_key(number)});
  }
  // Sets the recorded last use to so many seconds ago.
  void age(int number, int seconds) const {
    fs::last_write_time(file_of(number), fs::file_time_type::clock::now() - std::chrono::seconds(seconds));
  }
  // Runs in another process, to change limits and rights of a process.
  static bool in_child(const std::function<bool()>& body) {
    const pid_t child = fork();
    if (child == 0) _exit(body() && !HasFailure() ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  static rlimit set_open_files(rlim_t count) {  // returns the previous limit
    rlimit before{};
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit limit{count, before.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return before;
  }

  TemporaryFolder folder_;
  std::vector<std::string> warnings_;
};

TEST_F(DiskTierTest, ReadsWhatWasWrittenAlsoAfterARestart) {
  {
    DiskTier tier(options());
    EXPECT_FALSE(has(tier, 1));
    EXPECT_FALSE(read(tier, 1));
    EXPECT_TRUE(write(tier, 1));
    EXPECT_TRUE(write(tier, 2));
    EXPECT_TRUE(has(tier, 1));
    EXPECT_TRUE(read(tier, 1));
    EXPECT_EQ(tier.stats().pages, 2u);
    EXPECT_EQ(tier.stats().bytes, 2 * kFileBytes);
  }
  DiskTier tier(options());
  EXPECT_TRUE(has(tier, 1));
  EXPECT_TRUE(read(tier, 1));
  EXPECT_TRUE(read(tier, 2));
  EXPECT_FALSE(has(tier, 3));
  EXPECT_EQ(tier.stats().pages, 2u);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(DiskTierTest, WritesAPageOnce) {
  DiskTier tier(options());
  EXPECT_TRUE(write(tier, 1));
  const auto time = fs::last_write_time(file_of(1));
  EXPECT_TRUE(write(tier, 1));
  EXPECT_EQ(fs::last_write_time(file_of(1)), time);
  EXPECT_EQ(folder_.files().size(), 1u);
}

TEST_F(DiskTierTest, StaysBelowItsLimitAndEvictsTheLeastRecentlyUsed) {
  DiskTier tier(options(4));
  for (int i = 1; i <= 4; ++i) write(tier, i);
  EXPECT_TRUE(has(tier, 1));  // a use
  EXPECT_TRUE(write(tier, 5));
  EXPECT_TRUE(has(tier, 1));
  EXPECT_FALSE(has(tier, 2));
  EXPECT_FALSE(fs::exists(file_of(2)));
  for (int i = 6; i < 40; ++i) {
    EXPECT_TRUE(write(tier, i));
    EXPECT_LE(folder_.files().size(), 4u);
  }
  EXPECT_EQ(tier.stats().bytes, 4 * kFileBytes);
}

// A file whose bookkeeping failed is found later, and eviction still makes room.
TEST_F(DiskTierTest, MakesRoomAfterAnAllocationFailed) {
  int written = 0;
  for (int count = 0; count < 12; ++count) {
    DiskTier tier(options(2));
    const auto page = sample_page(count, kDiskPageBytes);
    try {
      const NoMemoryAfter failing(count);
      tier.write(sample_key(count), page);
    } catch (const std::bad_alloc&) {
    }
    // Not all are: where it failed with the temporary file in place, writing is suspended.
    for (int i = 100; i < 104; ++i) written += write(tier, 10 * count + i);
    EXPECT_LE(tier.stats().bytes, 2 * kFileBytes);
  }
  EXPECT_GT(written, 4 * 4);
}

TEST_F(DiskTierTest, RemembersTheOrderOfUsesAcrossRestarts) {
  {
    DiskTier tier(options(4));
    for (int i = 1; i <= 4; ++i) write(tier, i);
    for (int i = 1; i <= 4; ++i) age(i, 1000 - i);
    EXPECT_TRUE(read(tier, 1));  // records the use immediately
    tier.refresh();
  }
  DiskTier tier(options(4));
  write(tier, 5);
  EXPECT_TRUE(has(tier, 1));
  EXPECT_FALSE(has(tier, 2));
}

TEST_F(DiskTierTest, RecordsUsesWithoutReading) {
  for (int i = 1; i <= 3; ++i) {
    DiskTier tier(options(3));
    write(tier, i);
    age(i, 1000 - i);
  }
  {
    DiskTier tier(options(3));
    EXPECT_TRUE(has(tier, 1));
    tier.refresh();
  }
  DiskTier tier(options(2));
  EXPECT_TRUE(has(tier, 1));
  EXPECT_FALSE(has(tier, 2)) << "what exceeds a smaller limit goes at once";
  EXPECT_TRUE(has(tier, 3));
}

TEST_F(DiskTierTest, IgnoresFilesOfAnotherIdentityButCountsThem) {
  DiskTierOptions other = options();
  other.identity = "another model";
  {
    DiskTier tier(other);
    for (int i = 1; i <= 3; ++i) write(tier, i);
  }
  DiskTier tier(options(4));
  EXPECT_FALSE(has(tier, 1));
  EXPECT_FALSE(read(tier, 1));
  EXPECT_EQ(tier.stats().pages, 0u);
  EXPECT_EQ(tier.stats().bytes, 3 * kFileBytes);
  write(tier, 1);
  write(tier, 2);
  EXPECT_EQ(folder_.files().size(), 4u) << "the oldest of the other identity made room";
  EXPECT_TRUE(read(tier, 1));
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(DiskTierTest, NeverReturnsADamagedPage) {
  // Sampled offsets in header and page; page_file_test flips every bit of a small file.
  for (size_t offset = 0; offset < page_file_bytes(kDiskPageBytes); offset = offset < 80 ? offset + 1 : offset + 97) {
    DiskTier tier(options());
    ASSERT_TRUE(write(tier, 1));
    Bytes content = file_content(file_of(1));
    content[offset] ^= std::byte{0x10};
    write_content(file_of(1), content);
    ASSERT_TRUE(has(tier, 1));
    ASSERT_FALSE(read(tier, 1)) << offset;
    ASSERT_FALSE(has(tier, 1));
    ASSERT_FALSE(fs::exists(file_of(1)));
    ASSERT_EQ(tier.stats().damaged, 1u);
    ASSERT_TRUE(write(tier, 1)) << "it can be written again";
    ASSERT_TRUE(read(tier, 1));
    fs::remove(file_of(1));
  }
}

TEST_F(DiskTierTest, RemovesTruncatedFilesWhenListingAndWhenReading) {
  const Bytes content = [&] {
    DiskTier tier(options());
    write(tier, 1);
    return file_content(file_of(1));
  }();
  for (size_t length = 0; length < content.size(); length += length < 80 ? 1 : 211) {
    write_content(file_of(1), content);
    DiskTier before(options());
    write_content(file_of(1), {content.begin(), content.begin() + static_cast<ptrdiff_t>(length)});
    DiskTier after(options());
    ASSERT_FALSE(has(after, 1)) << length;
    write_content(file_of(1), {content.begin(), content.begin() + static_cast<ptrdiff_t>(length)});
    ASSERT_FALSE(read(before, 1)) << length;
    ASSERT_FALSE(fs::exists(file_of(1)));
  }
}

TEST_F(DiskTierTest, WarnsOncePerForeignFileAndAboutAFewAtMost) {
  write_content(folder_.path() / "notes.txt", Bytes(10));
  fs::create_directory(folder_.path() / "folder");
  fs::create_directory(file_of(1));
  fs::create_symlink("/etc/passwd", file_of(2));
  ASSERT_EQ(mkfifo(file_of(3).c_str(), 0600), 0);
  DiskTier tier(options());
  EXPECT_EQ(warnings_.size(), 5u);
  tier.refresh();
  write(tier, 9);
  tier.refresh();
  EXPECT_EQ(warnings_.size(), 5u);
  for (int i = 1; i <= 3; ++i) EXPECT_FALSE(has(tier, i) || read(tier, i));
  EXPECT_TRUE(fs::exists(folder_ / "notes.txt"));

  for (int i = 0; i < 100; ++i) write_content(folder_.path() / std::to_string(i), Bytes(1));
  tier.refresh();
  EXPECT_EQ(warnings_.size(), 16u);
  EXPECT_NE(warnings_.back().find("no more warnings"), std::string::npos);

  fs::remove_all(folder_.path());
  EXPECT_FALSE(write(tier, 10));
  ASSERT_EQ(warnings_.size(), 17u) << "the warning that nothing can be written always appears";
  EXPECT_NE(warnings_.back().find("cannot create a file"), std::string::npos) << warnings_.back();
}

TEST_F(DiskTierTest, KeepsItsFilesPrivate) {
  DiskTierOptions inside = options();
  inside.directory = folder_ / "a/b/";
  DiskTier tier(inside);
  ASSERT_TRUE(write(tier, 1));
  const auto mode = [](const fs::path& path) { return static_cast<unsigned>(fs::status(path).permissions()); };
  EXPECT_EQ(mode(folder_.path() / "a/b"), 0700u);
  for (const auto& file : fs::directory_iterator(inside.directory)) EXPECT_EQ(mode(file.path()), 0600u);
}

TEST_F(DiskTierTest, NamesTheFolderThatCannotBeOpened) {
  write_content(folder_.path() / "file", Bytes(1));
  DiskTierOptions wrong = options();
  for (const char* name : {"file", "file/below"}) {
    wrong.directory = folder_ / name;
    try {
      DiskTier tier(wrong);
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(wrong.directory), std::string::npos) << error.what();
    }
  }
}

TEST_F(DiskTierTest, SaysThatAFolderCannotBeCreatedOnAReadOnlyDisk) {
  if (mount("tmpfs", folder_.path().c_str(), "tmpfs", MS_RDONLY, "size=64k") != 0)
    GTEST_SKIP() << "mounting a read-only disk needs root";
  DiskTierOptions wrong = options();
  for (const char* name : {"new", "new/below"}) {
    wrong.directory = folder_ / name;
    std::string message;
    try {
      DiskTier tier(wrong);
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_NE(message.find(wrong.directory + " cannot be created: Read-only file system"), std::string::npos)
        << message;
    EXPECT_NE(message.find("--cache-dir"), std::string::npos) << message;
  }
  EXPECT_EQ(umount(folder_.path().c_str()), 0);
}

TEST_F(DiskTierTest, RemovesFilesOfADeadWriterButNotOfALivingOne) {
  write_content(folder_.path() / "writing-dead.tmp", Bytes(100));
  write_content(folder_.path() / "writing-alive.tmp", Bytes(100));
  const int alive = open((folder_ / "writing-alive.tmp").c_str(), O_WRONLY);
  ASSERT_EQ(flock(alive, LOCK_EX), 0);
  DiskTier tier(options());
  EXPECT_FALSE(fs::exists(folder_ / "writing-dead.tmp"));
  EXPECT_TRUE(fs::exists(folder_ / "writing-alive.tmp"));
  EXPECT_TRUE(warnings_.empty());
  close(alive);
}

TEST_F(DiskTierTest, SeesFilesThatAnotherProcessWroteOrRemoved) {
  DiskTier a(options(6)), b(options(6));
  write(a, 1);
  EXPECT_FALSE(has(b, 1));
  b.refresh();
  EXPECT_TRUE(has(b, 1));
  EXPECT_TRUE(read(b, 1));
  write(b, 2);
  a.refresh();
  EXPECT_TRUE(read(a, 2));
  for (int i = 10; i < 20; ++i) write(a, i);  // evicts 1 and 2
  EXPECT_TRUE(has(b, 1)) << "b has not looked yet";
  EXPECT_FALSE(read(b, 1));
  EXPECT_FALSE(has(b, 1));
  b.refresh();
  EXPECT_TRUE(read(b, 19));
  EXPECT_EQ(b.stats().pages, a.stats().pages);
  EXPECT_TRUE(write(b, 1));
  EXPECT_LE(folder_.files().size(), 6u) << "both keep the limit together";
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(DiskTierTest, TwoWritersOfOnePageLeaveOneWholeFile) {
  DiskTier a(options()), b(options());
  EXPECT_TRUE(write(a, 1));
  EXPECT_TRUE(write(b, 1));
  EXPECT_EQ(folder_.files().size(), 1u);
  EXPECT_TRUE(read(a, 1));
  EXPECT_TRUE(read(b, 1));
}

// A file size limit cuts files off in the middle of a page, like a disk that fills up.
TEST_F(DiskTierTest, StopsWritingWhenAWriteFailsButStillReads) {
  EXPECT_TRUE(in_child([&] {
    DiskTier tier(options());
    EXPECT_TRUE(write(tier, 1));
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{2000, 2000};
    setrlimit(RLIMIT_FSIZE, &limit);
    EXPECT_TRUE(tier.accepts());
    EXPECT_FALSE(write(tier, 2));
    EXPECT_FALSE(tier.accepts());
    EXPECT_FALSE(write(tier, 3));
    EXPECT_EQ(warnings_.size(), 1u);
    EXPECT_EQ(folder_.files().size(), 1u) << "the torn file was removed";
    EXPECT_FALSE(has(tier, 2));
    EXPECT_TRUE(read(tier, 1));
    return true;
  }));
}

TEST_F(DiskTierTest, StopsWritingOnAFullDisk) {
  if (mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "mounting a small disk needs root";
  {
    DiskTier tier(options());
    int written = 0;
    while (written < 100 && write(tier, written)) ++written;
    EXPECT_GT(written, 0);
    EXPECT_LT(written, 9);
    EXPECT_FALSE(tier.accepts());
    ASSERT_EQ(warnings_.size(), 1u);
    EXPECT_NE(warnings_[0].find("No space left"), std::string::npos) << warnings_[0];
    for (int i = 0; i < written; ++i) EXPECT_TRUE(read(tier, i));
    DiskTier again(options());
    for (int i = 0; i < written; ++i) EXPECT_TRUE(read(again, i));
  }
  EXPECT_EQ(umount(folder_.path().c_str()), 0);
}

TEST_F(DiskTierTest, ReadsAFolderThatItCannotWriteTo) {
  {
    DiskTier tier(options());
    write(tier, 1);
  }
  // Root may write everywhere, so become a user who may only read.
  ASSERT_EQ(chmod(folder_.path().c_str(), 0555), 0);
  ASSERT_EQ(chmod(file_of(1).c_str(), 0444), 0);
  EXPECT_TRUE(in_child([&] {
    if (geteuid() == 0 && (setegid(65534) != 0 || seteuid(65534) != 0)) return false;
    DiskTier tier(options());
    EXPECT_TRUE(read(tier, 1));
    EXPECT_FALSE(write(tier, 2));
    EXPECT_FALSE(tier.accepts());
    EXPECT_EQ(warnings_.size(), 1u);
    EXPECT_TRUE(read(tier, 1));
    return true;
  }));
  chmod(folder_.path().c_str(), 0700);
}

TEST_F(DiskTierTest, CountsFilesThatItCannotRemove) {
  {
    DiskTier tier(options());
    for (int i = 1; i <= 3; ++i) write(tier, i);
  }
  ASSERT_EQ(chmod(folder_.path().c_str(), 0555), 0);
  for (int i = 1; i <= 3; ++i) ASSERT_EQ(chmod(file_of(i).c_str(), 0444), 0);
  EXPECT_TRUE(in_child([&] {
    if (geteuid() == 0 && (setegid(65534) != 0 || seteuid(65534) != 0)) return false;
    DiskTier tier(options(2));
    EXPECT_FALSE(tier.accepts());
    EXPECT_EQ(tier.stats().bytes, 3 * kFileBytes);
    for (int i = 1; i <= 3; ++i) EXPECT_TRUE(has(tier, i) && read(tier, i));
    return true;
  }));
  chmod(folder_.path().c_str(), 0700);
}

// The process temporarily runs out of file descriptors.
TEST_F(DiskTierTest, ForgetsNoPageWhenNoFileCanBeOpened) {
  EXPECT_TRUE(in_child([&] {
    DiskTier tier(options(3)), other(options(3));
    for (int i = 1; i <= 2; ++i) write(tier, i);
    other.refresh();
    write(other, 3);
    // Long ago, so that a time once noted would be trusted.
    fs::last_write_time(folder_.path(), fs::file_time_type::clock::now() - std::chrono::seconds(100));
    const rlimit before = set_open_files(0);
    tier.refresh();
    EXPECT_EQ(tier.stats().pages, 2u);
    EXPECT_EQ(tier.stats().bytes, 2 * kFileBytes);
    EXPECT_FALSE(read(tier, 1));
    EXPECT_TRUE(has(tier, 1));
    EXPECT_FALSE(tier.accepts());
    set_open_files(before.rlim_cur);
    EXPECT_TRUE(read(tier, 1));
    tier.refresh();
    EXPECT_TRUE(read(tier, 3)) << "the folder is listed again though it did not change since";
    return true;
  }));
}

TEST_F(DiskTierTest, WritesNothingToAFolderThatItCannotList) {
  EXPECT_TRUE(in_child([&] {
    {
      DiskTier tier(options(2));
      for (int i = 1; i <= 2; ++i) write(tier, i);
    }
    const int next = dup(0);  // the number that the folder itself gets: the last one
    close(next);
    const rlimit before = set_open_files(static_cast<rlim_t>(next) + 1);
    DiskTier tier(options(2));
    set_open_files(before.rlim_cur);
    EXPECT_FALSE(write(tier, 3));
    EXPECT_EQ(folder_.files().size(), 2u);
    EXPECT_EQ(warnings_.size(), 1u);
    tier.refresh();
    EXPECT_EQ(tier.stats().pages, 2u);
    return true;
  }));
}

TEST_F(DiskTierTest, SurvivesTheRemovalOfItsFolder) {
  DiskTier tier(options());
  write(tier, 1);
  fs::remove_all(folder_.path());
  EXPECT_FALSE(read(tier, 1));
  EXPECT_FALSE(write(tier, 2));
  tier.refresh();
  EXPECT_EQ(warnings_.size(), 1u);
}

}  // namespace
}  // namespace quire
