// The element types of tensors in files, with their names and block sizes: one table for all.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace quire {

// The values up to Q2_0 are ggml's type ids; the others occur only in safetensors.
enum class TensorType : uint8_t {
  // clang-format off
  F32, F16, Q4_0, Q4_1, Q4_2, Q4_3, Q5_0, Q5_1, Q8_0, Q8_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Q8_K,
  IQ2_XXS, IQ2_XS, IQ3_XXS, IQ1_S, IQ4_NL, IQ3_S, IQ2_S, IQ4_XS, I8, I16, I32, I64, F64, IQ1_M, BF16,
  Q4_0_4_4, Q4_0_4_8, Q4_0_8_8, TQ1_0, TQ2_0, IQ4_NL_4_4, IQ4_NL_4_8, IQ4_NL_8_8, MXFP4, NVFP4, Q1_0, Q2_0,
  U8, BOOL, U16, U32, U64, C64, F8_E4M3, F8_E5M2, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ, F6_E2M3, F6_E3M2, F4,
  // clang-format on
};

struct TensorTypeInfo {
  TensorType type;
  std::string_view name;    // as ggml and safetensors write it: "Q4_K", "BF16"
  int ggml_id;              // -1: not a ggml type
  uint32_t block_elements;  // elements of a block, all in one row
  uint32_t block_bytes;
  bool loadable;  // dequantize() (quant/blocks.h) can read it
};

const TensorTypeInfo& info(TensorType type);
std::span<const TensorTypeInfo> tensor_types();
inline std::string_view name(TensorType type) { return info(type).name; }

std::optional<TensorType> tensor_type_from_ggml(uint32_t id);
std::optional<TensorType> tensor_type_from_name(std::string_view name);

// The bytes of a tensor. shape: outermost dimension first; no dimensions: one element. nullopt if the size overflows
// 64 bits or a row (the last dimension) is not a whole number of blocks.
std::optional<uint64_t> tensor_bytes(TensorType type, std::span<const uint64_t> shape);

}  // namespace quire
