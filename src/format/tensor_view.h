// A named tensor in a mapped file: what every reader hands to model/.
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
  std::vector<uint64_t> shape;       // outermost first, [rows, cols], as Hugging Face writes it (GGUF's order reversed)
  std::span<const std::byte> bytes;  // rows * row bytes, owned by the reader; safetensors promise no alignment
};

}  // namespace quire
