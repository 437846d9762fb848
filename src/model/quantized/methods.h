// The readers of each form of codes. All throw Error for tensors that are missing or do not fit.
#pragma once

#include <utility>

#include "model/quantized/module_tensors.h"

namespace quire {

CodedMatrix open_gptq(const ModuleTensors& module, const CodedScheme& scheme);
CodedMatrix open_awq(const ModuleTensors& module, const CodedScheme& scheme);
CodedMatrix open_packed_int(const ModuleTensors& module, const CodedScheme& scheme);
CodedMatrix open_int8(const ModuleTensors& module, const CodedScheme& scheme);  // kInt8 and kBnb8
CodedMatrix open_fp8(const ModuleTensors& module, const CodedScheme& scheme);
CodedMatrix open_fp4(const ModuleTensors& module, const CodedScheme& scheme);  // kNvfp4, kMxfp4, kMxfp4Blocks
CodedMatrix open_bnb4(const ModuleTensors& module, const CodedScheme& scheme);

// A CodedMatrix::read_rows of a function that reads one row.
template <class F>
auto each_row(F read_row) {
  return [read_row = std::move(read_row)](std::span<const int> rows, std::span<const CodedRow> out) {
    for (size_t i = 0; i < rows.size(); ++i) read_row(rows[i], out[i]);
  };
}

}  // namespace quire
