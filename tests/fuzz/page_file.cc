// links: kv
// Reads any bytes as a page file: either it is refused, or it is exactly what would be written for the page it
// contains. If the first byte is odd, the rest is XORed onto a valid file, to get past the checksum.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kv/page_file.h"

namespace {

constexpr size_t kPage = 96;
const quire::PageFileName kName{0x0123456789abcdef, {1, 2}};

void require(bool holds) {
  if (!holds) __builtin_trap();
}

std::vector<std::byte> written(int fd, const std::vector<std::byte>& page) {
  require(ftruncate(fd, 0) == 0 && quire::write_page_file(fd, kName, page));
  std::vector<std::byte> file(quire::page_file_bytes(page.size()));
  require(pread(fd, file.data(), file.size(), 0) == static_cast<ssize_t>(file.size()));
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int fd = memfd_create("page", MFD_CLOEXEC);
  require(fd >= 0);
  if (const auto name = quire::parse_page_file_name({reinterpret_cast<const char*>(data), size}))
    require(quire::text(*name) == std::string(reinterpret_cast<const char*>(data), size));

  if (size == 0) return 0;
  const bool difference = *data & 1;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> file(bytes + 1, bytes + size);
  if (difference) {
    const auto whole = written(fd, std::vector<std::byte>(kPage, std::byte{7}));
    file.resize(std::max(file.size(), whole.size()));
    for (size_t i = 0; i < whole.size(); ++i) file[i] ^= whole[i];
  }
  require(ftruncate(fd, 0) == 0);
  require(pwrite(fd, file.data(), file.size(), 0) == static_cast<ssize_t>(file.size()));
  std::vector<std::byte> page(kPage);
  if (quire::read_page_file(fd, kName, page).state == quire::PageFileRead::kWhole) require(written(fd, page) == file);
  return 0;
}
