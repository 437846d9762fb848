// The readers of each form of codes. All throw Error for tensors that are missing or do not fit.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "model/quantized/module_tensors.h"

namespace quire {

CodedMatrix open_gptq(const ModuleTensors& module, const CodedScheme& scheme);
CodedMatrix open_awq(const ModuleTensors& module, const CodedScheme& scheme);  // kAwq and kQuarkInt4
CodedMatrix open_packed_int(const ModuleTensors& module, const CodedScheme& scheme);
CodedMatrix open_int8(const ModuleTensors& module, const CodedScheme& scheme);  // kInt8 and kBnb8
CodedMatrix open_fp8(const ModuleTensors& module, const CodedScheme& scheme);   // kFp8 and kMxfp8
CodedMatrix open_fp4(const ModuleTensors& module, const CodedScheme& scheme);   // kNvfp4, kMxfp4, kMxfp4Blocks
CodedMatrix open_bnb4(const ModuleTensors& module, const CodedScheme& scheme);
CodedMatrix open_int4_pairs(const ModuleTensors& module, const CodedScheme& scheme);
CodedMatrix open_mlx(const ModuleTensors& module, const CodedScheme& scheme);
CodedMatrix open_torchao(const ModuleTensors& module, const CodedScheme& scheme);
CodedMatrix open_hqq(const ModuleTensors& module, const CodedScheme& scheme);

// The inputs under a scale: `group`, or, if that is 0, as many as the number of scales in a row tells.
int group_by_shape(const ModuleTensors& module, std::string_view ending, int group);

// E2M1, doubled.
inline constexpr std::array<float, 16> kDoubledE2M1 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Scales as bytes: NaN follows, and the negative numbers of E4M3.
inline constexpr uint8_t kLargestE4M3 = 0x7e, kLargestE8M0 = 0xfe;

// Throws if one is NaN. from: at least codes.size() bytes.
void copy_e4m3(std::span<const std::byte> from, const TensorLabel& label, int row, std::span<uint8_t> codes);

// A CodedMatrix::read_rows of a function that reads one row.
template <class F>
auto each_row(F read_row) {
  return [read_row = std::move(read_row)](std::span<const int> rows, std::span<const CodedRow> out) {
    for (size_t i = 0; i < rows.size(); ++i) read_row(rows[i], out[i]);
  };
}

}  // namespace quire
