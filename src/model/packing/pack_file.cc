#include "model/packing/pack_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/checksum.h"
#include "model/packing/unfinished_file.h"
#include "ops/backend.h"

namespace quire {
namespace {

static_assert(std::endian::native == std::endian::little, "pack files are little-endian");

constexpr size_t kChunk = size_t{4} << 20;  // bytes of data under one checksum
// Data begins at a huge page, so that file systems with large folios can map huge pages.
constexpr size_t kAlignment = size_t{2} << 20;

struct Header {
  // The first byte is not text, and the last two reveal line-ending conversion.
  char magic[8] = {'\x8b', 'Q', 'P', 'A', 'C', 'K', '\r', '\n'};
  uint32_t version = 1;
  uint32_t header_bytes = sizeof(Header);
  uint64_t identity_high = 0, identity_low = 0;
  uint64_t data_bytes = 0, data_offset = 0, chunk_bytes = kChunk;
  uint64_t reserved = 0;
  uint64_t checksum_low = 0, checksum_high = 0;
};
static_assert(sizeof(Header) == 80 && offsetof(Header, checksum_low) == 64);

size_t chunks_of(size_t data_bytes) { return (data_bytes + kChunk - 1) / kChunk; }
size_t data_offset(size_t data_bytes) {
  const size_t head = sizeof(Header) + chunks_of(data_bytes) * sizeof(uint64_t);
  return (head + kAlignment - 1) / kAlignment * kAlignment;
}

std::span<const std::byte> chunk(std::span<const std::byte> data, int i) {
  const size_t begin = static_cast<size_t>(i) * kChunk;
  return data.subspan(begin, std::min(kChunk, data.size() - begin));
}

// Everything before the data, for these checksums of its chunks. A file is right if it begins with just these bytes.
std::vector<std::byte> make_head(const PackIdentity& identity, size_t data_bytes, std::span<const uint64_t> checksums) {
  Header header;
  header.identity_high = identity.high;
  header.identity_low = identity.low;
  header.data_bytes = data_bytes;
  header.data_offset = data_offset(data_bytes);
  std::vector<std::byte> head(header.data_offset);
  std::memcpy(head.data(), &header, sizeof header);
  std::memcpy(head.data() + sizeof header, checksums.data(), checksums.size_bytes());
  // The checksum's own bytes are still zeros.
  const XXH128_hash_t sum = XXH3_128bits(head.data(), head.size());
  header.checksum_low = sum.low64;
  header.checksum_high = sum.high64;
  std::memcpy(head.data(), &header, sizeof header);
  return head;
}

// Bytes of the mapping at `address` that are mapped as huge pages.
size_t huge_bytes(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const std::string begin = fmt::format("{:x}-", reinterpret_cast<uintptr_t>(address));
  constexpr std::string_view kField = "FilePmdMapped:";
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    found = found || line.starts_with(begin);
    if (found && line.starts_with(kField)) return std::strtoull(line.c_str() + kField.size(), nullptr, 10) << 10;
  }
  return 0;
}

// Maps all pages at once, and finds what the disk cannot read. Old kernels lack it: then pages are mapped one by one.
bool map_pages(std::span<const std::byte> bytes) {
  return ::madvise(const_cast<std::byte*>(bytes.data()), bytes.size(), MADV_POPULATE_READ) == 0 || errno != EFAULT;
}

// Whether decoding from the mapped data is as fast as from a LargeBuffer.
bool is_fast(std::span<const std::byte> data, const MappedFile& file) {
  constexpr size_t kSmall = size_t{16} << 20;  // about what the caches hold, and few entries of the TLB
  return data.size() <= kSmall || huge_bytes(file.bytes().data()) >= data.size() / 4 * 3;
}

}  // namespace

PackFile::PackFile(std::string folder, PackIdentity identity, size_t data_bytes, Warn warn)
    : folder_(std::move(folder)),
      path_(
          (std::filesystem::path(folder_) / fmt::format("{:016x}{:016x}.pack", identity.high, identity.low)).string()),
      identity_(identity),
      data_bytes_(data_bytes),
      warn_(std::move(warn)) {}

bool PackFile::warn(const std::string& text) const {
  if (warn_) warn_("pack cache " + text);
  return false;
}

std::optional<LoadedPack> PackFile::load(Backend& backend, Team& team, const OnLoad& report, bool may_map) const {
  std::error_code ignored;
  if (!std::filesystem::exists(path_, ignored) && !ignored) return std::nullopt;
  LoadedPack pack;
  std::string problem;
  try {
    MappedFile file(path_);
    std::vector<uint64_t> checksums(chunks_of(data_bytes_));
    problem = check_header(file, checksums);
    if (problem.empty()) problem = read_data(std::move(file), checksums, may_map, backend, pack, team, report);
    if (!problem.empty()) problem = path_ + " " + problem;
  } catch (const Error& e) {
    problem = e.what();
  }
  if (problem.empty()) {
    ::utimensat(AT_FDCWD, path_.c_str(), nullptr, 0);  // records the use, for those who remove old files; may fail
    return pack;
  }
  warn(fmt::format("{}; the model is packed again", problem));
  return std::nullopt;
}

// Reads the checksums of the data. Returns what is wrong with the header; empty: nothing.
std::string PackFile::check_header(const MappedFile& file, std::vector<uint64_t>& checksums) const {
  std::vector<std::byte> found(data_offset(data_bytes_));
  if (file.bytes().size() != found.size() + data_bytes_) return "has the wrong size";
  file.read(0, found);
  std::memcpy(checksums.data(), found.data() + sizeof(Header), checksums.size() * sizeof(uint64_t));
  if (found == make_head(identity_, data_bytes_, checksums)) return "";
  return "has the header of another model or version, or a damaged one";
}

// Returns what is wrong with the data; empty: nothing.
std::string PackFile::read_data(MappedFile file, std::span<const uint64_t> checksums, bool may_map, Backend& backend,
                                LoadedPack& to, Team& team, const OnLoad& report) const {
  const size_t offset = data_offset(data_bytes_);
  const std::span<const std::byte> data = file.bytes().subspan(offset);
  const int chunks = static_cast<int>(checksums.size());
  // Makes the system read large folios, where the file system has them, and map them as huge pages.
  ::madvise(const_cast<std::byte*>(file.bytes().data()), file.bytes().size(), MADV_HUGEPAGE);
  std::atomic<bool> damaged{false};
  LoadMeter meter(report, LoadProgress::Stage::kChecking, data_bytes_);
  may_map = may_map && backend.share(data) && file.hold_content();
  if (may_map) {
    team.for_tiles(chunks, [&](int i, int) {
      if (!map_pages(chunk(data, i))) damaged = true;
    });
    may_map = is_fast(data, file);
  }
  if (!may_map) to.memory = BackendMemory(backend, data_bytes_);
  team.for_tiles(chunks, [&](int i, int thread) {
    const std::span<const std::byte> part = chunk(data, i);
    const auto check = [&](std::span<const std::byte> bytes) {
      if (checksum(bytes) != checksums[static_cast<size_t>(i)]) damaged = true;
    };
    if (may_map) {
      check(part);
    } else {
      // Checked after it was copied, since the file may change.
      backend.write(to.memory.data() + (part.data() - data.data()), part.size(), [&](std::span<std::byte> copy) {
        std::memcpy(copy.data(), part.data(), part.size());
        check(copy);
      });
      if (i % 8 == 7) file.release();  // or the process would hold everything twice
    }
    meter.add(part.size(), thread);
  });
  if (damaged) return "has a wrong checksum";
  if (!may_map) return "";
  file.check_unchanged();
  file.stop_checking();
  to.mapped.emplace(MappedPack{std::move(file), offset});
  return "";
}

bool PackFile::save(Backend& backend, std::byte* data, Team& team, const OnLoad& report) const {
  const auto fail = [this](const char* action, int error) {
    return warn(fmt::format("{}: cannot {}: {}; {}. The model runs, but its next start packs it again", folder_, action,
                            std::generic_category().message(error), remedy(error)));
  };
  if (const int error = open_pack_folder(folder_); error != 0) return fail("create the folder", error);
  UnfinishedFile file(folder_);
  if (file.error() != 0) return fail("create a file", file.error());
  const size_t offset = data_offset(data_bytes_);
  if (const int error = file.reserve(offset + data_bytes_); error != 0) return fail("write a file", error);

  std::vector<uint64_t> checksums(chunks_of(data_bytes_));
  std::atomic<int> failure{0};
  LoadMeter meter(report, LoadProgress::Stage::kSaving, data_bytes_);
  team.for_tiles(static_cast<int>(checksums.size()), [&](int i, int thread) {
    if (failure != 0) return;
    HostCopy copy;
    const size_t at = static_cast<size_t>(i) * kChunk;
    const std::span<const std::byte> part = backend.view(data + at, std::min(kChunk, data_bytes_ - at), copy);
    checksums[static_cast<size_t>(i)] = checksum(part);
    const int written = file.write_at(part, offset + at);
    if (written != 0) failure = written;
    meter.add(part.size(), thread);
  });
  if (failure == 0) failure = file.write_at(make_head(identity_, data_bytes_, checksums), 0);
  if (failure == 0 && ::fsync(file.fd()) != 0) failure = errno;
  if (failure != 0) return fail("write a file", failure);
  if (const int error = file.rename_to(path_); error != 0) return fail("rename a file", error);
  return true;
}

}  // namespace quire
