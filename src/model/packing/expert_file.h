// A file that holds the packed matrices of a model's experts, so that memory need not hold them all.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/packing/pack_file.h"
#include "model/packing/unfinished_file.h"

namespace quire {

// The experts of all layers, numbered in one order. An expert is a run of bytes, which the file's user gives their meaning.
//
// A file of the pack cache has the name IDENTITY.experts. It appears whole, by rename, and is never changed afterwards, so
// processes may read and write the folder at the same time. An open file keeps its bytes if another one gets its name. A
// program that changes it all the same does no harm: each expert is checked whenever it is read.
//
// Format, little-endian: a header of 64 bytes; for each expert its number of bytes, and their XXH3-64; zeros up to a multiple
// of 4096; the experts, each at a multiple of 4096. The header ends with an XXH3-128 of its other bytes and of what follows
// it up to the first expert.
class ExpertFile {
 public:
  // sizes: bytes of each expert. Nothing if the folder has no file of this identity, or, after a warning, if its head is
  // damaged or cannot be read. Reads the head alone.
  static std::optional<ExpertFile> open(const std::string& folder, const PackIdentity& identity,
                                        std::span<const size_t> sizes, const PackFile::Warn& warn);
  ~ExpertFile();
  ExpertFile(ExpertFile&& other) noexcept;
  ExpertFile& operator=(ExpertFile&&) = delete;

  // Its path, or for one without a name where it is, for messages.
  const std::string& name() const { return name_; }
  size_t experts() const { return places_.size(); }
  size_t bytes_of(size_t expert) const { return places_[expert].bytes; }
  // to: bytes_of(expert). Throws Error naming the file: the disk cannot read it (kResource), it is cut or has other bytes than
  // were written (kInvalid). Thread-safe.
  void read(size_t expert, std::span<std::byte> to) const;

  // What an expert takes in the file, and a slot for it in memory: whole pages.
  static constexpr size_t kAlignment = 4096;
  static constexpr size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

 private:
  friend class ExpertFileWriter;
  struct Place {
    size_t offset, bytes;
    uint64_t checksum;
  };
  static std::string file_name(const PackIdentity& identity);
  static std::vector<Place> places_of(std::span<const size_t> sizes);
  static std::vector<std::byte> make_head(const PackIdentity& identity, std::span<const Place> places);
  static std::string check_head(int fd, const PackIdentity& identity, std::span<Place> places);
  ExpertFile(int fd, std::string name, std::vector<Place> places);

  int fd_;
  std::string name_;
  std::vector<Place> places_;
};

// Writes such a file. It throws nothing because of the folder or the disk: the first failure is problem().
class ExpertFileWriter {
 public:
  // keep: the file gets its name in the folder once it is complete. Otherwise it has none from the start, so that it ends with
  // the process.
  ExpertFileWriter(const std::filesystem::path& folder, const PackIdentity& identity, std::span<const size_t> sizes,
                   bool keep);

  // May be called from several threads, for different experts.
  void write(size_t expert, std::span<const std::byte> bytes);
  // All experts have been written. Nothing if there was a problem.
  std::optional<ExpertFile> finish();

  // "cannot write a file: No space left on device; free some space"; empty: none.
  std::string problem() const;
  bool failed() const { return error_ != 0; }

 private:
  void fail(const char* action, int error);

  const std::filesystem::path folder_;
  const PackIdentity identity_;
  const bool keep_;
  std::vector<ExpertFile::Place> places_;
  UnfinishedFile file_;
  std::atomic<int> error_{0};
  std::atomic<const char*> action_{""};
};

}  // namespace quire
