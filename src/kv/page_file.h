// The format of a file that holds one page of the KV cache (docs/prefix-cache.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kv/page_key.h"

namespace quire {

// Hashes what a page's bytes depend on, its size and the format version. Files that differ in any of these have other
// names.
uint64_t page_file_identity(std::string_view identity, size_t page_bytes);

// The name of a page file; its header repeats it.
struct PageFileName {
  uint64_t identity = 0;
  PageKey key;
  bool operator==(const PageFileName&) const = default;
};

std::string text(const PageFileName& name);  // 16 and 32 hexadecimal digits: "0123456789abcdef-...0123.page"
std::optional<PageFileName> parse_page_file_name(std::string_view text);

constexpr size_t kPageHeaderBytes = 64;
constexpr size_t page_file_bytes(size_t page_bytes) { return kPageHeaderBytes + page_bytes; }

// What comes before the page, in a file or elsewhere.
using PageHeader = std::array<std::byte, kPageHeaderBytes>;
PageHeader page_header(const PageFileName& name, std::span<const std::byte> page);
// What is wrong with a header and the page after it: a static string, or null if both are exactly what was written for
// this name.
const char* page_damage(const PageFileName& name, const PageHeader& header, std::span<const std::byte> page);

// Writes header and page at the start of the file. Returns false and sets errno on failure.
bool write_page_file(int fd, const PageFileName& name, std::span<const std::byte> page);

struct PageFileRead {
  enum State { kWhole, kDamaged, kUnreadable } state;
  const char* why;  // a static string; null if kWhole
};
// Reads the page into `page`, which has the page's size. kWhole only if every byte of the file is what write_page_file
// writes for this name; otherwise the content of `page` is undefined.
PageFileRead read_page_file(int fd, const PageFileName& name, std::span<std::byte> page);

}  // namespace quire
