#include "kv/page_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace quire {
namespace {

static_assert(std::endian::native == std::endian::little, "page files are little-endian");

constexpr uint32_t kVersion = 1;

struct Header {
  // The first byte is not text, and the last two reveal line-ending conversion.
  char magic[8] = {'\x8b', 'Q', 'K', 'V', 'P', 'G', '\r', '\n'};
  uint32_t version = kVersion;
  uint32_t header_bytes = kPageHeaderBytes;
  uint64_t identity = 0;
  PageKey key;
  uint64_t page_bytes = 0;
  uint64_t checksum_low = 0, checksum_high = 0;  // XXH3-128 of the preceding 48 bytes and the page
};
static_assert(sizeof(Header) == kPageHeaderBytes && offsetof(Header, checksum_low) == 48);

XXH128_hash_t checksum(const Header& header, std::span<const std::byte> page) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  XXH3_128bits_update(&state, &header, offsetof(Header, checksum_low));
  XXH3_128bits_update(&state, page.data(), page.size());
  return XXH3_128bits_digest(&state);
}

Header make_header(const PageFileName& name, std::span<const std::byte> page) {
  Header header;
  header.identity = name.identity;
  header.key = name.key;
  header.page_bytes = page.size();
  const XXH128_hash_t sum = checksum(header, page);
  header.checksum_low = sum.low64;
  header.checksum_high = sum.high64;
  return header;
}

// Calls preadv or pwritev until both parts are done. On failure returns false with errno; 0 means end of file.
bool transfer(ssize_t (*call)(int, const iovec*, int, off_t), int fd, iovec header, iovec page) {
  const size_t total = header.iov_len + page.iov_len;
  for (size_t done = 0; done < total;) {
    const size_t in_header = std::min(done, header.iov_len), in_page = done - in_header;
    const iovec parts[] = {{static_cast<char*>(header.iov_base) + in_header, header.iov_len - in_header},
                           {static_cast<char*>(page.iov_base) + in_page, page.iov_len - in_page}};
    const ssize_t bytes = call(fd, parts, 2, static_cast<off_t>(done));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes == 0) errno = 0;
    if (bytes <= 0) return false;
    done += static_cast<size_t>(bytes);
  }
  return true;
}

bool parse_hex(std::string_view digits, uint64_t& value) {
  for (const char c : digits)
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
      return false;  // lower case only, so that a page has one name
  return std::from_chars(digits.data(), digits.data() + digits.size(), value, 16).ec == std::errc();
}

}  // namespace

uint64_t page_file_identity(std::string_view identity, size_t page_bytes) {
  const std::string all = fmt::format("{} {} {}", kVersion, page_bytes, identity);
  return XXH3_64bits(all.data(), all.size());
}

std::string text(const PageFileName& name) {
  return fmt::format("{:016x}-{:016x}{:016x}.page", name.identity, name.key.high, name.key.low);
}

std::optional<PageFileName> parse_page_file_name(std::string_view text) {
  PageFileName name;
  if (text.size() != 16 + 1 + 32 + 5 || text[16] != '-' || !text.ends_with(".page")) return std::nullopt;
  if (!parse_hex(text.substr(0, 16), name.identity) || !parse_hex(text.substr(17, 16), name.key.high) ||
      !parse_hex(text.substr(33, 16), name.key.low))
    return std::nullopt;
  return name;
}

PageHeader page_header(const PageFileName& name, std::span<const std::byte> page) {
  return std::bit_cast<PageHeader>(make_header(name, page));
}

// Exactly one header is right: the one written for this name and these bytes.
const char* page_damage(const PageFileName& name, const PageHeader& header, std::span<const std::byte> page) {
  const PageHeader expected = page_header(name, page);
  if (std::memcmp(&header, &expected, offsetof(Header, checksum_low)) != 0)
    return "has the header of another page or version";
  return header == expected ? nullptr : "has a wrong checksum";
}

bool write_page_file(int fd, const PageFileName& name, std::span<const std::byte> page) {
  PageHeader header = page_header(name, page);
  return transfer(&pwritev, fd, {&header, sizeof header}, {const_cast<std::byte*>(page.data()), page.size()});
}

PageFileRead read_page_file(int fd, const PageFileName& name, std::span<std::byte> page) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return {PageFileRead::kUnreadable, "cannot be examined"};
  if (!S_ISREG(status.st_mode)) return {PageFileRead::kDamaged, "is not a regular file"};
  if (static_cast<uint64_t>(status.st_size) != page_file_bytes(page.size()))
    return {PageFileRead::kDamaged, "has the wrong size"};
  PageHeader header;
  if (!transfer(&preadv, fd, {&header, sizeof header}, {page.data(), page.size()})) {
    if (errno == 0) return {PageFileRead::kDamaged, "was cut short"};
    return {PageFileRead::kUnreadable, "cannot be read"};
  }
  if (const char* const damage = page_damage(name, header, page)) return {PageFileRead::kDamaged, damage};
  return {PageFileRead::kWhole, nullptr};
}

}  // namespace quire
