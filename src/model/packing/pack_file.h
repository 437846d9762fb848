// A file that holds a model's packed matrices, so that the next start maps them instead of packing again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files/mapped_file.h"
#include "base/team.h"
#include "model/packing/load_meter.h"
#include "ops/backend_memory.h"

namespace quire {

// Hashes everything that the packed bytes depend on.
struct PackIdentity {
  uint64_t high = 0, low = 0;
  bool operator==(const PackIdentity&) const = default;
};

// A mapped file whose content is held (MappedFile::hold_content()).
struct MappedPack {
  MappedFile file;
  size_t offset;
  std::span<const std::byte> bytes() const { return file.bytes().subspan(offset); }
};

// A file's data, of which every byte has been checked: mapped, or copied to memory of the backend.
struct LoadedPack {
  std::optional<MappedPack> mapped;
  BackendMemory memory;
};

// The file of one identity in a folder of such files. It appears whole, by rename, and is never changed afterwards, so
// processes may read and write the folder at the same time. A program that changes a file all the same does no harm: what
// is loaded was checked after it was copied, or is held. Nothing here throws because of the folder or the file: a failure
// is a warning, and the caller packs, or goes on without a file.
//
// Format, little-endian: a header of 80 bytes; an XXH3-64 for each 4 MiB of data; zeros up to a multiple of 2 MiB; the
// data. The header ends with an XXH3-128 of its other bytes and of what follows it up to the data.
class PackFile {
 public:
  using Warn = std::function<void(const std::string&)>;  // may be empty

  PackFile(std::string folder, PackIdentity identity, size_t data_bytes, Warn warn);

  // Reads the file and checks it, on all threads. Nothing if it is missing, or, after one warning, if it is damaged or
  // cannot be read. The file is mapped if its content can be held, the backend can share it, and decoding from it is as fast
  // as from a LargeBuffer: the system has mapped most of it as huge pages, or it is small. Otherwise it is copied to the
  // backend's memory. `may_map`: false for a copy.
  std::optional<LoadedPack> load(Backend& backend, Team& team, const OnLoad& report, bool may_map = true) const;

  // Writes the file, on all threads, and waits until the disk has it. Returns false after a warning if that fails.
  // data: in the backend's memory.
  bool save(Backend& backend, std::byte* data, Team& team, const OnLoad& report) const;

  const std::string& path() const { return path_; }

 private:
  std::string check_header(const MappedFile& file, std::vector<uint64_t>& checksums) const;
  std::string read_data(MappedFile file, std::span<const uint64_t> checksums, bool may_map, Backend& backend,
                        LoadedPack& to, Team& team, const OnLoad& report) const;
  bool warn(const std::string& text) const;  // returns false

  std::string folder_, path_;
  PackIdentity identity_;
  size_t data_bytes_;
  Warn warn_;
};

}  // namespace quire
