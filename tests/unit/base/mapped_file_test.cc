#include "base/files/mapped_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "error_of.h"
#include "leases.h"
#include "unit/base/mapped_sample.h"

namespace quire {
namespace {

TEST(MappedFile, ReleasesWhatWasReadAndReadsItAgain) {
  std::string text(size_t{1} << 20, ' ');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 / 7);
  const TemporaryFile file(text);
  const MappedFile mapped(file.path());
  const auto is_same = [&] { return std::ranges::equal(mapped.bytes(), std::as_bytes(std::span(text))); };
  EXPECT_TRUE(is_same());
  EXPECT_GE(resident_kib(file.path()), 1024);
  mapped.release();
  EXPECT_EQ(resident_kib(file.path()), 0);
  EXPECT_TRUE(is_same());
}

TEST(MappedFile, ReleasesAnEmptyFile) {
  const TemporaryFile file("");
  const MappedFile mapped(file.path());
  mapped.release();
  EXPECT_TRUE(mapped.bytes().empty());
}

TEST(MappedFile, SaysThatItsFileWasCut) {
  const TemporaryFile file(std::string(100'000, 'x'));
  const MappedFile mapped(file.path());
  mapped.check_unchanged();
  std::filesystem::resize_file(file.path(), 5000);
  long sum = 0;
  for (const std::byte b : mapped.bytes()) sum += static_cast<long>(b);
  EXPECT_EQ(sum, 5000 * 'x');
  EXPECT_EQ(error_of([&] { mapped.check_unchanged(); }),
            file.path() + " was cut from 100000 to 5000 bytes while it was read; load it again once it is complete");
  std::filesystem::resize_file(file.path(), 100'000);
  EXPECT_NE(error_of([&] { mapped.check_unchanged(); }), "");
  std::vector<std::byte> part(10);
  mapped.read(99'990, part);
  std::filesystem::resize_file(file.path(), 99'995);
  EXPECT_NE(error_of([&] { mapped.read(99'990, part); }).find("was cut from 100000 to 99995 bytes"), std::string::npos);
}

TEST(MappedFile, SaysThatItsFileWasChanged) {
  const TemporaryFile file("some text");
  const MappedFile mapped(file.path());
  const std::string changed = file.path() + " was changed while it was read; load it again once nothing writes to it";
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the clock of file systems is coarse
  std::ofstream(file.path(), std::ios::in).seekp(2).write("!", 1);
  EXPECT_EQ(error_of([&] { mapped.check_unchanged(); }), changed);
  const MappedFile again(file.path());
  std::ofstream(file.path(), std::ios::app) << "more";
  EXPECT_EQ(error_of([&] { again.check_unchanged(); }), changed);
}

// Faults of several threads in several files, while files come and go.
TEST(MappedFile, SurvivesFilesThatAreCutWhileThreadsRead) {
  constexpr size_t kBytes = size_t{128} << 10;
  const TemporaryFile file(std::string(kBytes, 'x'));
  std::atomic<bool> done = false;
  std::atomic<int> cut = 0;
  std::vector<std::thread> readers;
  for (int t = 0; t < 4; ++t) {
    readers.emplace_back([&] {
      while (!done) {
        const MappedFile mapped(file.path());
        const auto odd = std::ranges::count_if(mapped.bytes(), [](std::byte b) { return b != std::byte{'x'}; });
        if (!error_of([&] { mapped.check_unchanged(); }).empty()) ++cut;
        if (odd > 0 && mapped.bytes().size() == kBytes) {
          EXPECT_NE(error_of([&] { mapped.check_unchanged(); }), "");
        }
      }
    });
  }
  for (int i = 0; i < 100 || (cut == 0 && i < 20'000); ++i) {
    std::filesystem::resize_file(file.path(), static_cast<size_t>(i) * 977 % 5000);
    std::ofstream(file.path(), std::ios::trunc) << std::string(kBytes, 'x');
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_GT(cut, 0);
}

TEST(MappedFile, KeepsHeldContentWhateverIsWritten) {
  if (!has_leases()) GTEST_SKIP() << "the file system has no leases";
  const std::string text(300'000, 'x');
  for (int i = 0; i < 20; ++i) {
    const TemporaryFile file(text);
    MappedFile mapped(file.path());
    ASSERT_TRUE(mapped.hold_content());
    std::atomic<bool> done = false;
    std::thread reader([&] {
      while (!done) ASSERT_TRUE(std::ranges::equal(mapped.bytes(), std::as_bytes(std::span(text))));
    });
    if (i % 2 == 0) std::ofstream(file.path(), std::ios::in) << std::string(text.size(), '!');
    std::filesystem::resize_file(file.path(), 10);
    EXPECT_EQ(std::filesystem::file_size(file.path()), 10u);
    done = true;
    reader.join();
    EXPECT_TRUE(std::ranges::equal(mapped.bytes(), std::as_bytes(std::span(text))));
  }
}

TEST(MappedFile, IsNotHeldWhileAProgramHasItOpenForWriting) {
  const TemporaryFile file("text");
  std::ofstream writer(file.path(), std::ios::app);
  MappedFile mapped(file.path());
  EXPECT_FALSE(mapped.hold_content());
}

TEST(FaultGuard, LeavesOtherFaultsToTheirHandlers) {
  const TemporaryFile file(std::string(10'000, 'x'));
  const MappedFile guarded(file.path());
  EXPECT_DEATH(::raise(SIGBUS), "");
  MappedFile trusted(file.path());
  trusted.stop_checking();
  std::filesystem::resize_file(file.path(), 0);
  EXPECT_DEATH(std::fprintf(stderr, "%d", static_cast<int>(trusted.bytes()[5000])), "");
  EXPECT_EQ(guarded.bytes()[5000], std::byte{0});
}

TEST(ReadTextFile, NamesGitLfsPointers) {
  for (const char* host : {"git-lfs", "hawser"}) {
    const TemporaryFile file(std::string("version https://") + host +
                             ".github.com/spec/v1\noid sha256:00\nsize 98362432\n");
    EXPECT_EQ(error_of([&] { read_text_file(file.path()); }),
              file.path() +
                  " is a git-lfs pointer, not the file itself: run `git lfs pull` in its folder, or download the file");
  }
  const TemporaryFile other("version https://example.com\n");
  EXPECT_EQ(read_text_file(other.path()), "version https://example.com\n");
  EXPECT_EQ(error_of([&] { read_text_file(other.path(), 10); }),
            other.path() + " has 28 bytes; at most 10 are allowed");
  EXPECT_EQ(error_of([] { read_text_file("/dev/zero"); }), "/dev/zero is not a regular file");
}

}  // namespace
}  // namespace quire
