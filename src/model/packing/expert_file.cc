#include "model/packing/expert_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <bit>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files/checksum.h"

namespace quire {
namespace {

static_assert(std::endian::native == std::endian::little, "files of experts are little-endian");

struct ExpertHeader {
  // The first byte is not text, and the last two reveal line-ending conversion.
  char magic[8] = {'\x8b', 'Q', 'E', 'X', 'P', 'T', '\r', '\n'};
  uint32_t version = 1;
  uint32_t header_bytes = sizeof(ExpertHeader);
  uint64_t identity_high = 0, identity_low = 0;
  uint64_t experts = 0, file_bytes = 0;
  uint64_t checksum_low = 0, checksum_high = 0;
};
static_assert(sizeof(ExpertHeader) == 64 && offsetof(ExpertHeader, checksum_low) == 48);

struct ExpertEntry {
  uint64_t bytes, checksum;
};

size_t expert_head_bytes(size_t experts) {
  return ExpertFile::aligned(sizeof(ExpertHeader) + experts * sizeof(ExpertEntry));
}

// Returns 0, an error of errno, or -1: the file ends earlier.
int read_at(int fd, std::span<std::byte> to, size_t offset) {
  while (!to.empty()) {
    const ssize_t n = ::pread(fd, to.data(), to.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : -1;
    to = to.subspan(static_cast<size_t>(n));
    offset += static_cast<size_t>(n);
  }
  return 0;
}

}  // namespace

ExpertFile::ExpertFile(int fd, std::string name, std::vector<Place> places)
    : fd_(fd), name_(std::move(name)), places_(std::move(places)) {}
ExpertFile::ExpertFile(ExpertFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), name_(std::move(other.name_)), places_(std::move(other.places_)) {}
ExpertFile::~ExpertFile() {
  if (fd_ >= 0) ::close(fd_);
}

std::string ExpertFile::file_name(const PackIdentity& identity) {
  return fmt::format("{:016x}{:016x}.experts", identity.high, identity.low);
}

std::vector<ExpertFile::Place> ExpertFile::places_of(std::span<const size_t> sizes) {
  std::vector<Place> places;
  size_t offset = expert_head_bytes(sizes.size());
  for (const size_t bytes : sizes) {
    places.push_back({offset, bytes, 0});
    offset += aligned(bytes);
  }
  return places;
}

// Everything before the experts. A file is right if it begins with just these bytes.
std::vector<std::byte> ExpertFile::make_head(const PackIdentity& identity, std::span<const Place> places) {
  ExpertHeader header;
  header.identity_high = identity.high;
  header.identity_low = identity.low;
  header.experts = places.size();
  header.file_bytes = places.back().offset + aligned(places.back().bytes);
  std::vector<std::byte> head(expert_head_bytes(places.size()));
  std::memcpy(head.data(), &header, sizeof header);
  for (size_t i = 0; i < places.size(); ++i) {
    const ExpertEntry entry{places[i].bytes, places[i].checksum};
    std::memcpy(head.data() + sizeof header + i * sizeof entry, &entry, sizeof entry);
  }
  // The checksum's own bytes are still zeros.
  const XXH128_hash_t sum = XXH3_128bits(head.data(), head.size());
  header.checksum_low = sum.low64;
  header.checksum_high = sum.high64;
  std::memcpy(head.data(), &header, sizeof header);
  return head;
}

// Reads the checksums of the experts. Returns what is wrong with the file; empty: nothing.
std::string ExpertFile::check_head(int fd, const PackIdentity& identity, std::span<Place> places) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return std::generic_category().message(errno);
  if (!S_ISREG(status.st_mode)) return "is not a regular file";
  if (std::cmp_not_equal(status.st_size, places.back().offset + aligned(places.back().bytes)))
    return "has the wrong size";
  std::vector<std::byte> found(expert_head_bytes(places.size()));
  if (const int error = read_at(fd, found, 0); error != 0)
    return error > 0 ? "cannot be read: " + std::generic_category().message(error) : "has the wrong size";
  for (size_t i = 0; i < places.size(); ++i) {
    ExpertEntry entry{};
    std::memcpy(&entry, found.data() + sizeof(ExpertHeader) + i * sizeof entry, sizeof entry);
    places[i].checksum = entry.checksum;
  }
  return found == make_head(identity, places) ? "" : "has the header of another model or version, or a damaged one";
}

std::optional<ExpertFile> ExpertFile::open(const std::string& folder, const PackIdentity& identity,
                                           std::span<const size_t> sizes, const PackFile::Warn& warn) {
  assert(!sizes.empty());
  const std::string path = (std::filesystem::path(folder) / file_name(identity)).string();
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  std::vector<Place> places = places_of(sizes);
  std::string problem =
      fd < 0 ? "cannot be opened: " + std::generic_category().message(errno) : check_head(fd, identity, places);
  if (problem.empty()) {
    ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // records the use, for those who remove old files; may fail
    return ExpertFile(fd, path, std::move(places));
  }
  if (fd >= 0) ::close(fd);
  if (warn) warn(fmt::format("pack cache {} {}; the experts are packed again", path, problem));
  return std::nullopt;
}

void ExpertFile::read(size_t expert, std::span<std::byte> to) const {
  const Place& place = places_[expert];
  assert(to.size() == place.bytes);
  const int error = read_at(fd_, to, place.offset);
  if (error > 0)
    throw no_resource("{}: expert {} cannot be read: {}; check the disk", name_, expert,
                      std::generic_category().message(error));
  if (error != 0 || checksum(to) != place.checksum)
    throw invalid("{}: expert {} {}; the file was changed or the disk is damaged. Remove it and start again", name_,
                  expert, error != 0 ? "is cut off" : "has a wrong checksum");
}

ExpertFileWriter::ExpertFileWriter(const std::filesystem::path& folder, const PackIdentity& identity,
                                   std::span<const size_t> sizes, bool keep)
    : folder_(folder), identity_(identity), keep_(keep), places_(ExpertFile::places_of(sizes)), file_(folder) {
  fail("create a file", file_.error());
  if (!failed() && !keep_) fail("remove the name of a file", file_.remove_name());
  if (!failed()) fail("write a file", file_.reserve(places_.back().offset + ExpertFile::aligned(places_.back().bytes)));
}

void ExpertFileWriter::fail(const char* action, int error) {
  int none = 0;
  if (error != 0 && error_.compare_exchange_strong(none, error)) action_ = action;
}

void ExpertFileWriter::write(size_t expert, std::span<const std::byte> bytes) {
  ExpertFile::Place& place = places_[expert];
  assert(bytes.size() == place.bytes);
  if (failed()) return;
  place.checksum = checksum(bytes);
  fail("write a file", file_.write_at(bytes, place.offset));
  if (expert + 1 < places_.size() || bytes.size() == ExpertFile::aligned(bytes.size())) return;
  // The file ends with a whole page.
  constexpr std::byte kZero{0};
  fail("write a file", file_.write_at({&kZero, 1}, place.offset + ExpertFile::aligned(bytes.size()) - 1));
}

std::optional<ExpertFile> ExpertFileWriter::finish() {
  if (!failed()) fail("write a file", file_.write_at(ExpertFile::make_head(identity_, places_), 0));
  std::string name = fmt::format("an unnamed file in {}", folder_.string());
  if (!failed() && keep_) {
    name = (folder_ / ExpertFile::file_name(identity_)).string();
    fail("write a file", ::fsync(file_.fd()) != 0 ? errno : 0);
    if (!failed()) fail("rename a file", file_.rename_to(name));
  }
  if (failed()) return std::nullopt;
  return ExpertFile(file_.release(), std::move(name), places_);
}

std::string ExpertFileWriter::problem() const {
  if (!failed()) return "";
  return fmt::format("cannot {}: {}; {}", action_.load(), std::generic_category().message(error_), remedy(error_));
}

}  // namespace quire
