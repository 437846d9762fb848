#include "base/files/gunzip.h"

#include <zlib.h>

#include <algorithm>

#include "base/error.h"

namespace quire {

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

namespace {

constexpr int kGzipOnly = 16 + MAX_WBITS;  // inflateInit2: a gzip header and the largest window
constexpr size_t kChunk = size_t{1} << 20;

// zlib's stream, freed on every path.
struct Inflater {
  z_stream stream{};
  Inflater() {
    if (inflateInit2(&stream, kGzipOnly) != Z_OK) throw no_resource("not enough memory to unpack a gzip file");
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
};

}  // namespace

std::string gunzip(std::span<const std::byte> bytes, const std::string& name, size_t limit) {
  if (!is_gzip(bytes)) throw invalid("{}: not a gzip file", name);
  Inflater inflater;
  z_stream& stream = inflater.stream;
  std::string out;
  size_t used = 0;
  while (true) {
    if (stream.avail_in == 0 && used < bytes.size()) {
      const size_t take = std::min(kChunk, bytes.size() - used);
      // zlib's pointer is not const, but it only reads.
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data() + used));
      stream.avail_in = static_cast<uInt>(take);
      used += take;
    }
    const size_t before = out.size();
    Bytef spill = 0;
    if (before >= limit) {
      // Full: the stream may end here, but any further byte is an error.
      stream.next_out = &spill;
      stream.avail_out = 1;
    } else {
      out.resize(std::min(limit, before + kChunk));
      stream.next_out = reinterpret_cast<Bytef*>(out.data() + before);
      stream.avail_out = static_cast<uInt>(out.size() - before);
    }
    const uInt room = stream.avail_out;
    const int status = inflate(&stream, Z_NO_FLUSH);
    const size_t got = room - stream.avail_out;
    if (before >= limit && got > 0) throw invalid("{}: unpacks to more than {} bytes", name, limit);
    out.resize(before + got);
    if (status == Z_STREAM_END) {
      if (stream.avail_in == 0 && used == bytes.size()) return out;
      if (inflateReset(&stream) != Z_OK) throw invalid("{}: broken gzip data", name);
      continue;
    }
    if (status == Z_BUF_ERROR || (status == Z_OK && got == 0 && stream.avail_in == 0 && used == bytes.size())) {
      throw invalid("{}: the gzip data is truncated", name);
    }
    if (status != Z_OK) throw invalid("{}: broken gzip data ({})", name, stream.msg ? stream.msg : "unknown error");
  }
}

}  // namespace quire
