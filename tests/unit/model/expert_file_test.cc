#include "model/packing/expert_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include "base/error.h"
#include "error_of.h"
#include "unit/model/expert_packs.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

class ExpertFiles : public testing::ExpertPacks {
 protected:
  void expect_right(const ExpertFile& file) {
    ASSERT_EQ(file.experts(), experts_.size());
    for (size_t i = 0; i < experts_.size(); ++i) EXPECT_EQ(read(file, i), experts_[i]) << i;
  }
  void expect_refused(const std::string& why) {
    warnings_.clear();
    EXPECT_FALSE(open()) << why;
    ASSERT_EQ(warnings_.size(), 1u) << why;
    EXPECT_NE(warnings_[0].find(why), std::string::npos) << warnings_[0];
    EXPECT_NE(warnings_[0].find(path().string()), std::string::npos) << warnings_[0];
    ASSERT_TRUE(write());
    EXPECT_TRUE(open());
    EXPECT_EQ(warnings_.size(), 1u);
  }
};

TEST_F(ExpertFiles, GiveBackWhatWasWritten) {
  EXPECT_FALSE(open());
  const auto written = write();
  ASSERT_TRUE(written);
  expect_right(*written);
  const auto opened = open();
  ASSERT_TRUE(opened);
  expect_right(*opened);
  EXPECT_EQ(opened->name(), path());
  EXPECT_EQ(files(), 1u);
  EXPECT_EQ(fs::file_size(path()), begin_of(experts_.size()));
  EXPECT_EQ(fs::status(path()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(ExpertFiles, WithoutANameLeaveNothing) {
  const auto file = write(kIdentity, false);
  ASSERT_TRUE(file);
  EXPECT_EQ(files(), 0u);
  expect_right(*file);
  EXPECT_NE(file->name().find(folder_.string()), std::string::npos);
}

TEST_F(ExpertFiles, OfOtherIdentitiesAreNotSeen) {
  ASSERT_TRUE(write({1, 2}));
  EXPECT_FALSE(open({1, 3}));
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(ExpertFiles, AreRefusedUnderAnotherName) {
  ASSERT_TRUE(write({3, 4}));
  fs::rename(folder_ / "00000000000000030000000000000004.experts", path());
  expect_refused("another model");
}

TEST_F(ExpertFiles, AreRefusedIfOneBitOfTheHeadHasChanged) {
  ASSERT_TRUE(write());
  for (const size_t at : {0, 8, 12, 16, 24, 32, 40, 48, 56, 63, 64, 72, 64 + 8 * 16 - 1, 4095}) {
    flip_bit(at);
    expect_refused("damaged");
  }
}

TEST_F(ExpertFiles, AreRefusedIfTheirSizeIsWrong) {
  ASSERT_TRUE(write());
  for (const size_t bytes : {size_t{0}, size_t{63}, size_t{4096}, begin_of(experts_.size()) - 1}) {
    fs::resize_file(path(), bytes);
    expect_refused("wrong size");
  }
}

TEST_F(ExpertFiles, AreRefusedIfTheyAreNoFiles) {
  fs::create_directories(path());
  EXPECT_FALSE(open());
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("not a regular file"), std::string::npos) << warnings_[0];
}

TEST_F(ExpertFiles, FindChangedBytesWhenTheyAreRead) {
  const auto file = write();
  ASSERT_TRUE(file);
  for (const size_t at : {begin_of(3), begin_of(3) + sizes_[3] - 1}) {
    flip_bit(at);
    EXPECT_EQ(
        error_of([&] { read(*file, 3); }),
        path().string() +
            ": expert 3 has a wrong checksum; the file was changed or the disk is damaged. Remove it and start again");
    EXPECT_EQ(read(*file, 2), experts_[2]);
    EXPECT_EQ(read(*file, 4), experts_[4]);
    flip_bit(at);
  }
  fs::resize_file(path(), begin_of(5) + 1);
  EXPECT_NE(error_of([&] { read(*file, 5); }).find("expert 5 is cut off"), std::string::npos);
  EXPECT_EQ(read(*file, 4), experts_[4]);
}

TEST_F(ExpertFiles, KeepTheirBytesIfAnotherFileGetsTheName) {
  const auto file = write();
  ASSERT_TRUE(file);
  ASSERT_TRUE(write());  // by another process, say
  flip_bit(begin_of(0));
  expect_right(*file);
  fs::remove(path());
  expect_right(*file);
}

TEST_F(ExpertFiles, CanBeWrittenByTwoAtOnce) {
  for (int i = 0; i < 8; ++i) {
    const auto write_one = [&] {
      ExpertFileWriter writer(folder_, kIdentity, sizes_, true);
      for (size_t e = 0; e < experts_.size(); ++e) writer.write(e, experts_[e]);
      EXPECT_TRUE(writer.finish()) << writer.problem();
    };
    std::thread other(write_one);
    write_one();
    other.join();
    const auto file = open();
    ASSERT_TRUE(file);
    expect_right(*file);
  }
  EXPECT_EQ(files(), 1u);
}

TEST_F(ExpertFiles, LeaveNothingIfTheDiskIsFull) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{20000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto file = write();
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, ignored);
  EXPECT_FALSE(file);
  EXPECT_EQ(problem_, "cannot write a file: File too large; check the disk");
  EXPECT_EQ(files(), 0u);
}

TEST_F(ExpertFiles, SayWhatIsWrongWithTheFolder) {
  ExpertFileWriter writer(folder_ / "missing", kIdentity, sizes_, true);
  writer.write(0, experts_[0]);
  EXPECT_FALSE(writer.finish());
  EXPECT_EQ(writer.problem(), "cannot create a file: No such file or directory; check the disk");
}

}  // namespace
}  // namespace quire
