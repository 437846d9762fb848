// One page of KV cache in a file of its own: the format (docs/prefix-cache.md), and nothing about folders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kv/page_key.h"

namespace quire {

// Of what a page's bytes depend on, its size and this format's version: files that differ in any have other names.
uint64_t page_file_identity(std::string_view identity, size_t page_bytes);

// What a page file is called, and what its header says again.
struct PageFileName {
  uint64_t identity = 0;
  PageKey key;
  bool operator==(const PageFileName&) const = default;
};

std::string text(const PageFileName& name);  // 16 and 32 hexadecimal digits: "0123456789abcdef-...0123.page"
std::optional<PageFileName> parse_page_file_name(std::string_view text);

constexpr size_t kPageHeaderBytes = 64;
constexpr size_t page_file_bytes(size_t page_bytes) { return kPageHeaderBytes + page_bytes; }

// Writes header and page at the file's start; false with errno when that fails.
bool write_page_file(int fd, const PageFileName& name, std::span<const std::byte> page);

struct PageFileRead {
  enum State { kWhole, kDamaged, kUnreadable } state;
  const char* why;  // a static text unless kWhole
};
// Reads the page into `page`, whose size is the page's. kWhole only when every byte of the file is what write_page_file
// writes for this name; otherwise `page` holds anything.
PageFileRead read_page_file(int fd, const PageFileName& name, std::span<std::byte> page);

}  // namespace quire
