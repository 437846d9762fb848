// A file that holds a model's packed matrices, so that the next start maps them instead of packing again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/mapped_file.h"
#include "base/team.h"
#include "model/packing/load_meter.h"

namespace quire {

// Hashes everything that the packed bytes depend on.
struct PackIdentity {
  uint64_t high = 0, low = 0;
  bool operator==(const PackIdentity&) const = default;
};

// The bytes of a file whose every byte has been checked.
struct MappedPack {
  MappedFile file;
  size_t offset;
  std::span<const std::byte> bytes() const { return file.bytes().subspan(offset); }
  // Whether decoding from the file is as fast as from a LargeBuffer: the system has mapped most of it as huge pages, or
  // it is small.
  bool is_fast() const;
  void copy_to(std::byte* memory, Team& team) const;
};

// The file of one identity in a folder of such files. It appears whole, by rename, and is never changed afterwards, so
// processes may read and write the folder at the same time. Nothing here throws because of the folder or the file: a
// failure is a warning, and the caller packs, or goes on without a file.
//
// Format, little-endian: a header of 80 bytes; an XXH3-64 for each 4 MiB of data; zeros up to a multiple of 2 MiB; the
// data. The header ends with an XXH3-128 of its other bytes and of what follows it up to the data.
class PackFile {
 public:
  using Warn = std::function<void(const std::string&)>;  // may be empty

  PackFile(std::string folder, PackIdentity identity, size_t data_bytes, Warn warn);

  // Maps the file and checks it on all threads, which reads it from the disk. Nothing if it is missing, or, after one
  // warning, if it is damaged or cannot be read.
  std::optional<MappedPack> open(Team& team, const OnLoad& report) const;

  // Writes the file, on all threads, and waits until the disk has it. Returns false after a warning if that fails.
  bool save(std::span<const std::byte> data, Team& team, const OnLoad& report) const;

  const std::string& path() const { return path_; }

 private:
  bool warn(const std::string& text) const;  // returns false

  std::string folder_, path_;
  PackIdentity identity_;
  size_t data_bytes_;
  Warn warn_;
};

}  // namespace quire
