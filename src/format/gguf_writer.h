// Writes GGUF files (version 3, little-endian): metadata, a list of tensors, then their bytes in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor_type.h"
#include "format/gguf.h"

namespace quire {

// What stands before the tensors' bytes. Keys and tensors keep the order in which they are added.
class GgufHeader {
 public:
  struct Tensor {
    std::string name;
    TensorType type;
    std::vector<uint64_t> shape;  // outermost first, as in TensorView
    uint64_t offset, bytes;       // offset: from the first tensor
  };

  void u32(std::string_view key, int64_t value);
  void f32(std::string_view key, double value);
  void flag(std::string_view key, bool value);
  void string(std::string_view key, std::string_view value);
  void strings(std::string_view key, std::span<const std::string> values);
  void numbers(std::string_view key, std::span<const int32_t> values);
  void numbers(std::string_view key, std::span<const float> values);
  void flags(std::string_view key, const std::vector<bool>& values);
  void bytes(std::string_view key, std::string_view values);
  // A value of another file, as it is there.
  void copy(std::string_view key, const GgufValue& value);
  // type: a ggml type; rows are whole blocks.
  void tensor(std::string name, TensorType type, std::vector<uint64_t> shape);

  std::span<const Tensor> tensors() const { return tensors_; }
  std::string spell() const;  // padded: the first tensor follows
  uint64_t bytes_of_data() const { return end_; }

 private:
  void key(std::string_view name, GgufType type);
  void array(std::string_view name, GgufType element, size_t count);
  template <class T>
  void number(T value) {
    metadata_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  std::string metadata_;
  uint64_t keys_ = 0, end_ = 0;
  std::vector<Tensor> tensors_;
};

// A file that appears under its name only when it is complete: until commit() it is NAME.tmp, which is removed if the
// object dies earlier. Throws Error (kResource, kInvalid) naming the file: not writable, disk full.
class GgufFile {
 public:
  GgufFile(std::filesystem::path path, const GgufHeader& header);
  // Until commit() it is `unfinished`, on the same disk. That file is continued if it exists, and kept if the object dies.
  GgufFile(std::filesystem::path path, const GgufHeader& header, std::filesystem::path unfinished);
  ~GgufFile();
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  // For reading the file before it is complete: tensors that are not written yet are zeros.
  const std::filesystem::path& unfinished_path() const { return unfinished_; }
  void write(const GgufHeader::Tensor& tensor, std::span<const std::byte> bytes);
  // Whether the tensor's bytes in the file have this checksum (base/files/checksum.h).
  bool has(const GgufHeader::Tensor& tensor, uint64_t checksum) const;
  void commit();

 private:
  void create(const GgufHeader& header, int flags);
  void drop() noexcept;
  void write_at(uint64_t offset, std::span<const std::byte> bytes);
  [[noreturn]] void fail(const char* what);

  std::filesystem::path path_, unfinished_;
  bool is_kept_ = false;
  uint64_t data_begin_ = 0;
  int descriptor_ = -1;
};

}  // namespace quire
