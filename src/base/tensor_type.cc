#include "base/tensor_type.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>

namespace quire {
namespace {

using T = TensorType;

// Row i describes the type of value i. No current program writes Q4_2, Q4_3 or the interleaved _4_4 ... _8_8; they are
// here so that messages about old files can name them.
constexpr auto kTypes = std::to_array<TensorTypeInfo>({
    {T::F32, "F32", 0, 1, 4, true},
    {T::F16, "F16", 1, 1, 2, true},
    {T::Q4_0, "Q4_0", 2, 32, 18, true},
    {T::Q4_1, "Q4_1", 3, 32, 20, true},
    {T::Q4_2, "Q4_2", 4, 16, 10, false},
    {T::Q4_3, "Q4_3", 5, 16, 12, false},
    {T::Q5_0, "Q5_0", 6, 32, 22, true},
    {T::Q5_1, "Q5_1", 7, 32, 24, true},
    {T::Q8_0, "Q8_0", 8, 32, 34, true},
    {T::Q8_1, "Q8_1", 9, 32, 36, false},
    {T::Q2_K, "Q2_K", 10, 256, 84, true},
    {T::Q3_K, "Q3_K", 11, 256, 110, true},
    {T::Q4_K, "Q4_K", 12, 256, 144, true},
    {T::Q5_K, "Q5_K", 13, 256, 176, true},
    {T::Q6_K, "Q6_K", 14, 256, 210, true},
    {T::Q8_K, "Q8_K", 15, 256, 292, false},
    {T::IQ2_XXS, "IQ2_XXS", 16, 256, 66, true},
    {T::IQ2_XS, "IQ2_XS", 17, 256, 74, true},
    {T::IQ3_XXS, "IQ3_XXS", 18, 256, 98, true},
    {T::IQ1_S, "IQ1_S", 19, 256, 50, true},
    {T::IQ4_NL, "IQ4_NL", 20, 32, 18, true},
    {T::IQ3_S, "IQ3_S", 21, 256, 110, true},
    {T::IQ2_S, "IQ2_S", 22, 256, 82, true},
    {T::IQ4_XS, "IQ4_XS", 23, 256, 136, true},
    {T::I8, "I8", 24, 1, 1, false},
    {T::I16, "I16", 25, 1, 2, false},
    {T::I32, "I32", 26, 1, 4, false},
    {T::I64, "I64", 27, 1, 8, false},
    {T::F64, "F64", 28, 1, 8, false},
    {T::IQ1_M, "IQ1_M", 29, 256, 56, true},
    {T::BF16, "BF16", 30, 1, 2, true},
    {T::Q4_0_4_4, "Q4_0_4_4", 31, 32, 18, false},
    {T::Q4_0_4_8, "Q4_0_4_8", 32, 32, 18, false},
    {T::Q4_0_8_8, "Q4_0_8_8", 33, 32, 18, false},
    {T::TQ1_0, "TQ1_0", 34, 256, 54, true},
    {T::TQ2_0, "TQ2_0", 35, 256, 66, true},
    {T::IQ4_NL_4_4, "IQ4_NL_4_4", 36, 32, 18, false},
    {T::IQ4_NL_4_8, "IQ4_NL_4_8", 37, 32, 18, false},
    {T::IQ4_NL_8_8, "IQ4_NL_8_8", 38, 32, 18, false},
    {T::MXFP4, "MXFP4", 39, 32, 17, true},
    {T::NVFP4, "NVFP4", 40, 64, 36, true},
    {T::Q1_0, "Q1_0", 41, 128, 18, true},
    {T::Q2_0, "Q2_0", 42, 64, 18, true},
    {T::U8, "U8", -1, 1, 1, false},
    {T::BOOL, "BOOL", -1, 1, 1, false},
    {T::U16, "U16", -1, 1, 2, false},
    {T::U32, "U32", -1, 1, 4, false},
    {T::U64, "U64", -1, 1, 8, false},
    {T::C64, "C64", -1, 1, 8, false},
    {T::F8_E4M3, "F8_E4M3", -1, 1, 1, false},
    {T::F8_E5M2, "F8_E5M2", -1, 1, 1, false},
    {T::F8_E8M0, "F8_E8M0", -1, 1, 1, false},
    {T::F8_E4M3FNUZ, "F8_E4M3FNUZ", -1, 1, 1, false},
    {T::F8_E5M2FNUZ, "F8_E5M2FNUZ", -1, 1, 1, false},
    {T::F6_E2M3, "F6_E2M3", -1, 4, 3, false},
    {T::F6_E3M2, "F6_E3M2", -1, 4, 3, false},
    {T::F4, "F4", -1, 2, 1, false},
});

constexpr bool rows_are_in_order() {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (static_cast<size_t>(kTypes[i].type) != i) return false;
    if (kTypes[i].ggml_id != (i <= static_cast<size_t>(T::Q2_0) ? static_cast<int>(i) : -1)) return false;
  }
  return kTypes.size() == static_cast<size_t>(T::F4) + 1;
}
static_assert(rows_are_in_order());

}  // namespace

const TensorTypeInfo& info(TensorType type) {
  assert(static_cast<size_t>(type) < kTypes.size());
  return kTypes[static_cast<size_t>(type)];
}

std::span<const TensorTypeInfo> tensor_types() { return kTypes; }

std::optional<TensorType> tensor_type_from_ggml(uint32_t id) {
  if (id > static_cast<uint32_t>(T::Q2_0)) return std::nullopt;
  return static_cast<TensorType>(id);
}

std::optional<TensorType> tensor_type_from_name(std::string_view name) {
  const auto* row = std::ranges::find(kTypes, name, &TensorTypeInfo::name);
  if (row == kTypes.end()) return std::nullopt;
  return row->type;
}

std::optional<uint64_t> tensor_bytes(TensorType type, std::span<const uint64_t> shape) {
  const TensorTypeInfo& t = info(type);
  const uint64_t columns = shape.empty() ? 1 : shape.back();
  if (columns % t.block_elements != 0) return std::nullopt;
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(columns / t.block_elements, uint64_t{t.block_bytes}, &bytes)) return std::nullopt;
  if (!shape.empty()) shape = shape.first(shape.size() - 1);
  for (const uint64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return bytes;
}

}  // namespace quire
