#include "kv/page_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "unit/kv/page_samples.h"

namespace quire {
namespace {

constexpr size_t kFilePageBytes = 200;
const PageFileName kName{0x0123456789abcdef, {0x1111111111111111, 0xfedcba9876543210}};

class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("page", 0)) {}
  ~MemoryFile() { close(fd_); }
  int fd() const { return fd_; }
  void fill(const Bytes& bytes) {
    ASSERT_EQ(ftruncate(fd_, 0), 0);
    ASSERT_EQ(pwrite(fd_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
  Bytes content() const {
    Bytes bytes(static_cast<size_t>(lseek(fd_, 0, SEEK_END)));
    EXPECT_EQ(pread(fd_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    return bytes;
  }

 private:
  int fd_;
};

Bytes whole_file() {
  MemoryFile file;
  EXPECT_TRUE(write_page_file(file.fd(), kName, sample_page(1, kFilePageBytes)));
  return file.content();
}

PageFileRead::State read_state(MemoryFile& file, const Bytes& bytes, const PageFileName& name = kName) {
  file.fill(bytes);
  Bytes page(kFilePageBytes);
  return read_page_file(file.fd(), name, page).state;
}

TEST(PageFile, ReturnsThePageThatWasWritten) {
  MemoryFile file;
  file.fill(whole_file());
  Bytes page(kFilePageBytes);
  EXPECT_EQ(read_page_file(file.fd(), kName, page).state, PageFileRead::kWhole);
  EXPECT_EQ(page, sample_page(1, kFilePageBytes));
}

TEST(PageFile, HasTheDocumentedLayout) {
  const Bytes bytes = whole_file();
  ASSERT_EQ(bytes.size(), page_file_bytes(kFilePageBytes));
  EXPECT_EQ(std::memcmp(bytes.data(), "\x8bQKVPG\r\n", 8), 0);
  const auto at = [&](size_t offset) {
    uint64_t value;
    std::memcpy(&value, bytes.data() + offset, 8);
    return value;
  };
  EXPECT_EQ(at(8), 64ull << 32 | 1);  // version 1, header of 64 bytes
  EXPECT_EQ(at(16), kName.identity);
  EXPECT_EQ(at(24), kName.key.low);
  EXPECT_EQ(at(32), kName.key.high);
  EXPECT_EQ(at(40), kFilePageBytes);
  EXPECT_EQ(std::memcmp(bytes.data() + 64, sample_page(1, kFilePageBytes).data(), kFilePageBytes), 0);
}

TEST(PageFile, IsDamagedByAnyFlippedBit) {
  MemoryFile file;
  Bytes bytes = whole_file();
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    const auto mask = static_cast<std::byte>(1 << bit % 8);
    bytes[bit / 8] ^= mask;
    ASSERT_EQ(read_state(file, bytes), PageFileRead::kDamaged) << "bit " << bit;
    bytes[bit / 8] ^= mask;
  }
  EXPECT_EQ(read_state(file, bytes), PageFileRead::kWhole);
}

TEST(PageFile, IsDamagedAtAnyOtherLength) {
  MemoryFile file;
  const Bytes bytes = whole_file();
  for (size_t length = 0; length <= bytes.size() + 70; ++length) {
    Bytes cut = bytes;
    cut.resize(length);
    ASSERT_EQ(read_state(file, cut) == PageFileRead::kWhole, length == bytes.size()) << length;
  }
}

TEST(PageFile, IsNotReadUnderAnotherName) {
  MemoryFile file;
  PageFileName other = kName;
  other.identity ^= 1;
  EXPECT_EQ(read_state(file, whole_file(), other), PageFileRead::kDamaged);
  other = kName;
  other.key.high ^= 1;
  EXPECT_EQ(read_state(file, whole_file(), other), PageFileRead::kDamaged);
}

TEST(PageFile, IsNotAFolderOrPipe) {
  Bytes page(kFilePageBytes);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(read_page_file(ends[0], kName, page).state, PageFileRead::kDamaged);
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(read_page_file(-1, kName, page).state, PageFileRead::kUnreadable);
}

TEST(PageFile, ReportsThatItCannotBeWritten) {
  const int fd = open("/dev/full", O_WRONLY);
  if (fd < 0) GTEST_SKIP() << "no /dev/full";
  errno = 0;
  EXPECT_FALSE(write_page_file(fd, kName, sample_page(1, kFilePageBytes)));
  EXPECT_EQ(errno, ENOSPC);
  close(fd);
}

TEST(PageFileName, ParsesOnlyItsOwnText) {
  const std::string name = "0123456789abcdef-fedcba98765432101111111111111111.page";
  EXPECT_EQ(text(kName), name);
  EXPECT_EQ(parse_page_file_name(name), kName);
  EXPECT_EQ(parse_page_file_name(name + "x"), std::nullopt);
  EXPECT_EQ(parse_page_file_name(""), std::nullopt);
  EXPECT_EQ(parse_page_file_name(name.substr(1)), std::nullopt);
  for (size_t i = 0; i < name.size(); ++i)
    for (const char c : {'g', 'A', ' ', '+', '-', 'x', '\0'}) {
      std::string other = name;
      other[i] = c;
      if (other == name) continue;
      EXPECT_EQ(parse_page_file_name(other), std::nullopt) << other;
    }
}

TEST(PageFileIdentity, DependsOnEverythingThatPagesDependOn) {
  EXPECT_EQ(page_file_identity("model", 100), page_file_identity("model", 100));
  EXPECT_NE(page_file_identity("model", 100), page_file_identity("model", 101));
  EXPECT_NE(page_file_identity("model", 100), page_file_identity("model2", 100));
}

}  // namespace
}  // namespace quire
