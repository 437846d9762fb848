// GGUF files (versions 2 and 3, little-endian), whole or split into parts.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "base/files/mapped_file.h"
#include "format/tensor_view.h"

namespace quire {

enum class GgufType : uint32_t { U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 };
std::string_view name(GgufType type);

// A checked metadata value, stored as in the file. Cheap to copy; valid as long as the Gguf.
struct GgufValue {
  GgufType type = GgufType::U8;
  GgufType element = GgufType::U8;   // type of an ARRAY's elements
  uint64_t count = 0;                // elements of an ARRAY
  std::span<const std::byte> bytes;  // the scalar, the string's characters, or the array's elements

  // The elements of an array, which may be arrays.
  std::vector<GgufValue> elements() const;
};

struct GgufPart;  // one file: gguf_part.h

// Owns the mappings of all parts, and copies of their headers. Views are valid as long as the object, also after a move.
// Opening checks the whole structure; a broken file is an Error that names file, field, offset, value and reason.
class Gguf {
 public:
  // Any part of a split file (NAME-00001-of-000NN.gguf) opens all of them.
  static Gguf open(const std::filesystem::path& path);
  // One whole file in memory that outlives the result; `file` is its name in messages.
  static Gguf parse(std::span<const std::byte> bytes, std::string file);

  Gguf(Gguf&&) = default;
  Gguf& operator=(Gguf&&) = default;

  uint32_t version() const { return version_; }
  const std::string& file() const { return file_; }  // the (first) file, for messages

  // Metadata; of a split file, that of the first part. Keys are in the file's order.
  std::span<const std::string_view> keys() const { return keys_; }
  bool has(std::string_view key) const { return find(key) != nullptr; }
  const GgufValue* find(std::string_view key) const;

  // T: bool, an integer, float, double, std::string_view or std::string. Throws Error for a missing key (without
  // fallback), another type, or an integer that does not fit T. The width of the file's integer does not matter; float
  // and double read F32 and F64.
  template <class T>
  T get(std::string_view key) const;
  template <class T>
  T get_or(std::string_view key, std::type_identity_t<T> fallback) const {
    return has(key) ? get<T>(key) : fallback;
  }

  // Arrays. Throws Error for a missing key or another element type.
  std::vector<std::string_view> strings(std::string_view key) const;
  template <class T>  // bool, an integer, float or double; converts as get<T>
  std::vector<T> numbers(std::string_view key) const;

  // Tensors of all parts, in the file's order. A vocabulary-only file has none.
  std::span<const TensorView> tensors() const { return tensors_; }
  const TensorView* find_tensor(std::string_view name) const;
  std::span<const MappedFile> mappings() const { return mappings_; }  // one for each part; none after parse()

 private:
  Gguf() = default;
  void add_part(GgufPart part);
  const GgufValue& at(std::string_view key) const;

  std::string file_;
  std::vector<MappedFile> mappings_;
  std::vector<std::vector<std::byte>> headers_;
  uint32_t version_ = 0;
  std::vector<std::string_view> keys_;
  std::unordered_map<std::string_view, GgufValue> values_;
  std::vector<TensorView> tensors_;
  std::unordered_map<std::string_view, size_t> tensor_index_;
};

}  // namespace quire
