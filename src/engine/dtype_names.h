// The names of numeric types, as options and reports spell them.
#pragma once

#include <string_view>

#include "engine/name_table.h"
#include "kernels/types.h"

namespace quire {

inline constexpr NameTable<Activations, 5> kActivationsNames = {{{Activations::kF32, "f32"},
                                                                 {Activations::kBf16, "bf16"},
                                                                 {Activations::kInt8, "int8"},
                                                                 {Activations::kInt8x2, "int8x2"},
                                                                 {Activations::kFp8, "fp8"}}};
inline constexpr NameTable<KvType, 6> kKvTypeNames = {{{KvType::kBf16, "bf16"},
                                                       {KvType::kF16, "f16"},
                                                       {KvType::kF32, "f32"},
                                                       {KvType::kFp8, "fp8"},
                                                       {KvType::kInt4, "int4"},
                                                       {KvType::kInt8, "int8"}}};

constexpr std::string_view name(Activations a) { return find_name(kActivationsNames, a); }
constexpr std::string_view name(KvType t) { return find_name(kKvTypeNames, t); }

}  // namespace quire
