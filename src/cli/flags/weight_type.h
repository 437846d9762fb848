// Weight types as flags spell them.
#pragma once

#include <string>
#include <vector>

#include "base/tensor_type.h"

namespace quire {

std::vector<TensorType> loadable_weight_types();

// "f32, f16, q4_0, ...": of all loadable ones, for help and messages.
std::string weight_type_names();

// In either case; q4_k_m and q4_k_s mean q4_k. Throws Error that lists the types if `text` is not a loadable one.
TensorType parse_weight_type(const char* flag, const std::string& text);

// The same for types that can be written (quant/encode.h).
TensorType parse_writable_type(const char* flag, const std::string& text);
// What is wrong with `text` as such a type, or an empty string.
std::string check_writable_type(const std::string& text);

}  // namespace quire
