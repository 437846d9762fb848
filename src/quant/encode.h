// Converts float32 weights to the types of GGUF files.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/tensor_type.h"

namespace quire {

// Whether encode_row() can write the type: F32, F16, BF16 and the block types with a writer.
bool is_writable(TensorType type);
std::vector<TensorType> writable_types();  // in the order of ggml's ids

// Why a row could not be written.
enum class EncodeResult { kDone, kNotFinite, kTooLarge };  // kTooLarge: for F16, or for a scale

// Writes a row of whole blocks, whose codes and scales are searched so that little is lost: the sum of
//   importance * min(sqrt(s^2 + weight^2), 2 s) * (weight - written)^2
// where s^2 is the mean square of the 256 weights around. F16 and BF16 round to nearest even, and Q8_0 is ggml's reference to the bit. importance: of each column, not
// negative and finite; empty: all count the same. out: exactly the row's bytes. The result depends on the arguments alone.
EncodeResult encode_row(TensorType type, std::span<const float> row, std::span<const float> importance,
                        std::span<std::byte> out);

}  // namespace quire
