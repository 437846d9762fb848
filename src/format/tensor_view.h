// A named tensor in a mapped file, as every reader returns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/tensor_type.h"

namespace quire {

struct TensorView {
  std::string name;
  TensorType type = TensorType::F32;
  std::vector<uint64_t> shape;       // outermost first: [rows, cols]; GGUF files store the reverse
  std::span<const std::byte> bytes;  // owned by the reader; may be unaligned in safetensors
};

}  // namespace quire
