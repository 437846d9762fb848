#include "base/mapped_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>

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

}  // namespace
}  // namespace quire
