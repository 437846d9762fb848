#include "base/files/gunzip.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "base/error.h"

namespace quire {
namespace {

std::string gzip(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string unpacked(const std::string& packed, size_t limit = size_t{1} << 30) {
  return gunzip(std::as_bytes(std::span(packed)), "file.gz", limit);
}

TEST(Gunzip, RestoresPackedData) {
  for (size_t size : {size_t{0}, size_t{1}, size_t{1000}, size_t{1} << 20, (size_t{3} << 20) + 7}) {
    std::string text(size, 'x');
    for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>((i * i) >> 5);
    EXPECT_EQ(unpacked(gzip(text)), text);
    EXPECT_EQ(unpacked(gzip(text), size), text);
  }
  EXPECT_EQ(unpacked(gzip("one ") + gzip("two")), "one two");
}

TEST(Gunzip, StopsAtItsLimit) {
  const std::string bomb = gzip(std::string(size_t{50} << 20, '\0'));
  EXPECT_THROW(unpacked(bomb, size_t{1} << 20), Error);
  EXPECT_THROW(unpacked(gzip("abc"), 2), Error);
}

TEST(Gunzip, ThrowsAClearErrorForBrokenData) {
  const std::string packed = gzip(std::string(5000, 'a') + "b");
  for (size_t length = 0; length < packed.size(); ++length) {
    EXPECT_THROW(unpacked(packed.substr(0, length)), Error) << length;
  }
  EXPECT_THROW(unpacked(packed + "rest"), Error);
  std::string flipped = packed;
  flipped[packed.size() - 6] ^= 1;  // the checksum
  EXPECT_THROW(unpacked(flipped), Error);
}

}  // namespace
}  // namespace quire
