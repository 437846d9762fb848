// Writes tensors as safetensors: one file, or shards with their index, as Hugging Face's libraries name them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/tensor_type.h"

namespace quire {

struct PlannedSafetensor {
  std::string name;
  TensorType type;              // one that safetensors have
  std::vector<uint64_t> shape;  // outermost first

  uint64_t bytes() const;
};

// Everything is planned before the first byte, so tensors may be written in any order and nothing is kept in memory.
// Throws Error (kResource, kInvalid) naming the file: not writable, disk full.
class SafetensorsWriter {
 public:
  static constexpr uint64_t kShardBytes = 5'000'000'000;  // as transformers cuts files

  // folder: exists, and has no such files. A shard has at least one tensor, and else at most shard_bytes.
  SafetensorsWriter(std::filesystem::path folder, std::vector<PlannedSafetensor> tensors,
                    uint64_t shard_bytes = kShardBytes);
  // Continues the files that an earlier writer of the same tensors has left in the folder. Everything else in it is removed.
  struct Continue {};
  SafetensorsWriter(Continue, const std::filesystem::path& folder, std::vector<PlannedSafetensor> tensors,
                    uint64_t shard_bytes = kShardBytes);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  std::span<const PlannedSafetensor> tensors() const { return tensors_; }
  void write(size_t tensor, std::span<const std::byte> bytes);  // the whole tensor
  // Whether the tensor's bytes in the file have this checksum (base/files/checksum.h). Then it counts as written.
  bool accept(size_t tensor, uint64_t checksum);
  // Writes the index and brings everything to the disk. Every tensor has been written.
  void finish();

 private:
  struct Shard {
    std::string name;
    int descriptor = -1;
  };
  struct Place {
    size_t shard = 0;
    uint64_t begin = 0;  // in the file
    bool written = false;
  };
  SafetensorsWriter(std::filesystem::path folder, std::vector<PlannedSafetensor> tensors, uint64_t shard_bytes,
                    int flags);
  void create(size_t shard, std::span<const size_t> tensors, int flags);
  void write_at(const Shard& shard, uint64_t at, std::span<const std::byte> bytes);
  [[noreturn]] void fail(const Shard& shard);

  std::filesystem::path folder_;
  std::vector<PlannedSafetensor> tensors_;
  std::vector<Place> places_;  // of each tensor
  std::vector<Shard> shards_;
};

}  // namespace quire
