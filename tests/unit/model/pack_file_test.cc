#include "model/packing/pack_file.h"

#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "leases.h"
#include "ops/cpu/cpu_backend.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr size_t kHead = size_t{2} << 20;  // bytes before the data

class PackFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("quire-packs-" + std::to_string(getpid()));
    fs::remove_all(folder_);
    data_.resize((size_t{9} << 20) + 64);  // three chunks
    for (size_t i = 0; i < data_.size(); ++i) data_[i] = static_cast<std::byte>(i * i >> 7);
  }
  void TearDown() override { fs::remove_all(folder_); }

  PackFile file(PackIdentity identity = {1, 2}, size_t bytes = 0) {
    return {folder_.string(), identity, bytes > 0 ? bytes : data_.size(),
            [this](const std::string& text) { warnings_.push_back(text); }};
  }
  bool save(const PackFile& to) { return to.save(backend_, data_.data(), team_, {}); }
  bool opens(const PackFile& from) {
    const auto pack = from.load(backend_, team_, {});
    if (!pack) return false;
    EXPECT_TRUE(std::ranges::equal(bytes(*pack), data_));
    return true;
  }
  std::span<const std::byte> bytes(const LoadedPack& pack) const {
    return {pack.mapped ? pack.mapped->bytes().data() : pack.memory.data(), data_.size()};
  }
  void flip_bit(const fs::path& path, size_t at) {
    std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(at));
    const char byte = static_cast<char>(stream.get() ^ 1);
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(byte);
  }
  // Expects that the file is refused with one warning that says so, and that it can be written again.
  void expect_refused(const PackFile& damaged, const std::string& why) {
    warnings_.clear();
    EXPECT_FALSE(opens(damaged)) << why;
    ASSERT_EQ(warnings_.size(), 1u) << why;
    EXPECT_NE(warnings_[0].find(why), std::string::npos) << warnings_[0];
    EXPECT_NE(warnings_[0].find(damaged.path()), std::string::npos) << warnings_[0];
    EXPECT_TRUE(save(damaged));
    EXPECT_TRUE(opens(damaged));
    EXPECT_EQ(warnings_.size(), 1u);
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
  std::vector<std::byte> data_;
  std::vector<std::string> warnings_;
  Team team_{2};
  CpuBackend backend_{"auto", team_};
};

TEST_F(PackFiles, GiveBackWhatWasSaved) {
  const PackFile pack = file();
  EXPECT_FALSE(opens(pack));
  EXPECT_TRUE(save(pack));
  EXPECT_TRUE(opens(pack));
  EXPECT_EQ(files(), 1u);
  EXPECT_TRUE(warnings_.empty());
  EXPECT_EQ(fs::status(pack.path()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(PackFiles, AreMappedOrCopied) {
  if (!has_leases()) GTEST_SKIP() << "the file system has no leases";
  ASSERT_TRUE(save(file()));
  const auto mapped = file().load(backend_, team_, {});
  ASSERT_TRUE(mapped);
  EXPECT_TRUE(mapped->mapped);  // it is small
  const auto copy = file().load(backend_, team_, {}, false);
  ASSERT_TRUE(copy);
  EXPECT_FALSE(copy->mapped);
  EXPECT_TRUE(std::ranges::equal(bytes(*copy), data_));
}

// Programs that change a file in place, which Quire never does.
TEST_F(PackFiles, KeepTheirBytesIfTheFileIsChanged) {
  if (!has_leases()) GTEST_SKIP() << "the file system has no leases";
  for (const bool cut : {false, true}) {
    ASSERT_TRUE(save(file()));
    const auto pack = file().load(backend_, team_, {});
    const auto copy = file().load(backend_, team_, {}, false);
    ASSERT_TRUE(pack && pack->mapped && copy);
    if (cut) {
      fs::resize_file(file().path(), kHead);  // waits until the pages are copied
    } else {
      const std::string scribble(data_.size(), '!');
      std::ofstream(file().path(), std::ios::binary | std::ios::in)
          .seekp(kHead)
          .write(scribble.data(), scribble.size());
    }
    EXPECT_TRUE(std::ranges::equal(bytes(*pack), data_)) << cut;
    EXPECT_TRUE(std::ranges::equal(bytes(*copy), data_)) << cut;
    EXPECT_FALSE(opens(file())) << cut;
  }
}

// What some program writes to all the time is refused, or loaded as it was.
TEST_F(PackFiles, NeverLoadWhatIsBeingChanged) {
  ASSERT_TRUE(save(file()));
  std::atomic<bool> done = false;
  std::thread scribbler([&] {
    for (int i = 0; !done; ++i) {
      flip_bit(file().path(), kHead + static_cast<size_t>(i) * 1000 % data_.size());
      if (i % 7 == 0) fs::resize_file(file().path(), kHead + data_.size() / 2);
      if (i % 7 == 1) fs::resize_file(file().path(), kHead + data_.size());
      if (i % 7 == 2) save(file());
    }
  });
  for (int i = 0; i < 30; ++i) {
    Team team(1);
    const PackFile pack(folder_.string(), {1, 2}, data_.size(), {});
    if (const auto loaded = pack.load(backend_, team, {}, i % 2 == 0)) {
      EXPECT_TRUE(std::ranges::equal(bytes(*loaded), data_));
    }
  }
  done = true;
  scribbler.join();
}

TEST_F(PackFiles, OfOtherIdentitiesAreNotSeen) {
  EXPECT_TRUE(save(file({1, 2})));
  EXPECT_FALSE(opens(file({1, 3})));
  EXPECT_FALSE(opens(file({2, 2})));
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(PackFiles, AreRefusedIfOneBitHasChanged) {
  const PackFile pack = file();
  ASSERT_TRUE(save(pack));
  for (const size_t at : {0, 8, 12, 16, 24, 32, 40, 48, 56, 64, 79, 80, 87, 103, 104, 1 << 20}) {
    flip_bit(pack.path(), at);
    expect_refused(pack, "damaged");
  }
  for (const size_t at : {size_t{0}, (size_t{4} << 20) - 1, size_t{4} << 20, data_.size() - 1}) {
    flip_bit(pack.path(), kHead + at);
    expect_refused(pack, "wrong checksum");
  }
}

TEST_F(PackFiles, AreRefusedIfTheirSizeIsWrong) {
  const PackFile pack = file();
  ASSERT_TRUE(save(pack));
  for (const size_t bytes : {size_t{0}, size_t{79}, kHead, kHead + data_.size() - 1, kHead + data_.size() + 1}) {
    fs::resize_file(pack.path(), bytes);
    expect_refused(pack, "wrong size");
  }
}

TEST_F(PackFiles, AreRefusedUnderAnotherName) {
  const PackFile one = file({1, 2}), other = file({3, 4});
  ASSERT_TRUE(save(one));
  fs::rename(one.path(), other.path());
  expect_refused(other, "another model");
}

TEST_F(PackFiles, AreRefusedIfTheyAreNoFiles) {
  const PackFile pack = file();
  fs::create_directories(pack.path());
  EXPECT_FALSE(opens(pack));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("not a regular file"), std::string::npos) << warnings_[0];
}

TEST_F(PackFiles, WarnOnceIfTheFolderCannotBeMade) {
  std::ofstream(folder_) << "a file";
  EXPECT_FALSE(save(file()));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("pack cache " + folder_.string() +
                              ": cannot create a file: Not a directory; choose a directory"),
            std::string::npos)
      << warnings_[0];
}

TEST_F(PackFiles, LeaveNothingBehindIfTheDiskIsFull) {
  ASSERT_TRUE(save(file({1, 2})));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{size_t{3} << 20, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_FALSE(save(file({3, 4})));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, ignored);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("cannot write a file: File too large"), std::string::npos) << warnings_[0];
  EXPECT_EQ(files(), 1u);
}

TEST_F(PackFiles, AreReplacedWhole) {
  const PackFile pack = file();
  ASSERT_TRUE(save(pack));
  const auto mapped = pack.load(backend_, team_, {});
  ASSERT_TRUE(mapped);
  ASSERT_TRUE(save(pack));  // by another process, say
  EXPECT_TRUE(std::ranges::equal(bytes(*mapped), data_));
  EXPECT_TRUE(opens(pack));
}

TEST_F(PackFiles, CanBeSavedByTwoAtOnce) {
  const PackFile pack = file();
  for (int i = 0; i < 8; ++i) {
    const auto save_one = [&] {
      Team team(1);
      EXPECT_TRUE(PackFile(folder_.string(), {1, 2}, data_.size(), {}).save(backend_, data_.data(), team, {}));
    };
    std::thread other(save_one);
    save_one();
    other.join();
    EXPECT_TRUE(opens(pack));
  }
  EXPECT_EQ(files(), 1u);
}

TEST_F(PackFiles, ThatNobodyFinishesAreRemoved) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "packing-0.tmp") << "abandoned";
  std::ofstream(folder_ / "packing-1.tmp") << "being written";
  const int writer = ::open((folder_ / "packing-1.tmp").c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_EQ(flock(writer, LOCK_EX | LOCK_NB), 0);
  EXPECT_TRUE(save(file()));
  EXPECT_FALSE(fs::exists(folder_ / "packing-0.tmp"));
  EXPECT_TRUE(fs::exists(folder_ / "packing-1.tmp"));
  close(writer);
}

}  // namespace
}  // namespace quire
