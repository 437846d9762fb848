// Internal to format/: one GGUF file, whole or one part of a split file.
#pragma once

#include "format/gguf_value.h"

namespace quire {

// Views into the file's bytes; `tensors` own their names.
struct GgufPart {
  std::string file;
  uint32_t version = 0;
  std::vector<std::string_view> keys;
  std::unordered_map<std::string_view, GgufValue> values;
  std::vector<TensorView> tensors;
};

// Checks all that can be checked within one file.
GgufPart read_gguf_part(std::span<const std::byte> bytes, std::string file);

// A value that reading the file itself needs.
template <class T>
std::optional<T> structural(const GgufPart& part, std::string_view key) {
  const auto found = part.values.find(key);
  if (found == part.values.end()) return std::nullopt;
  return gguf_detail::convert<T>(found->second, part.file, key);
}

}  // namespace quire
