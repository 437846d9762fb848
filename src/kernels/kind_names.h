// Names of what a linear multiplies, for files that keep choices between its kernels: they must not change.
#pragma once

namespace quire {

inline constexpr const char* kCodesNames[] = {"u2",     "u3",     "u4",   "u5",   "u6",  "i8",  // by Codes
                                              "table4", "float4", "e4m3", "bf16", "f16", "f32"};
inline constexpr const char* kInputNames[] = {"f32", "bf16", "int8", "fp8", "int8 row", "int8x2"};  // by Activations

}  // namespace quire
