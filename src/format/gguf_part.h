// Internal to format/: one GGUF file, whole or one part of a split file.
#pragma once

#include "format/gguf_value.h"

namespace quire {

// Keys and values are views into the header's bytes, tensors into those of the file; `tensors` own their names.
struct GgufPart {
  std::string file;
  uint32_t version = 0;
  std::vector<std::string_view> keys;
  std::unordered_map<std::string_view, GgufValue> values;
  std::vector<TensorView> tensors;
};

// Checks all that can be checked within one file. header: a copy of at least what precedes the tensors' data, so that
// nothing changes once it is checked, or the file itself. nullopt: the header is longer than that.
std::optional<GgufPart> read_gguf_part(std::span<const std::byte> header, std::span<const std::byte> bytes,
                                       std::string file);

// A value that reading the file itself needs.
template <class T>
std::optional<T> structural(const GgufPart& part, std::string_view key) {
  const auto found = part.values.find(key);
  if (found == part.values.end()) return std::nullopt;
  return gguf_detail::convert<T>(found->second, part.file, key);
}

}  // namespace quire
