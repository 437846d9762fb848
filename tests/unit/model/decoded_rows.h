// Rows of a CodedMatrix as numbers in the order of the model's inputs.
#pragma once

#include <bit>
#include <cstring>
#include <numeric>
#include <vector>

#include "model/quantized/coded_matrix.h"

namespace quire::testing {

// [rows.size()][cols]
inline std::vector<std::vector<float>> decoded_rows(const CodedMatrix& m, const std::vector<int>& rows, int cols) {
  struct Memory {
    std::vector<uint8_t> codes;
    std::vector<uint32_t> scales, minima;
  };
  const auto inputs = static_cast<size_t>(cols);
  const size_t group = static_cast<size_t>(m.format.group), groups = group > 0 ? (inputs + group - 1) / group : 0;
  const bool is_float = m.format.codes == Codes::kF32;
  std::vector<Memory> memory(rows.size());
  std::vector<CodedRow> out(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    memory[i].codes.assign(is_float ? inputs * 4 : inputs, 0xee);
    memory[i].scales.assign(groups, 0x7fc00000);
    memory[i].minima.assign(has_minima(m.format) ? groups : 0, 0xee);
    out[i] = CodedRow{memory[i].codes, memory[i].scales, memory[i].minima, {}, {}};
  }
  m.read_rows(rows, out);
  std::vector<std::vector<float>> decoded(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    std::vector<float> values(inputs);
    if (is_float)
      std::memcpy(values.data(), memory[i].codes.data(), inputs * 4);
    else
      decode_row(m.format, m.factor, out[i], values);
    decoded[i] = values;
    for (size_t k = 0; k < m.permutation.size(); ++k) decoded[i][static_cast<size_t>(m.permutation[k])] = values[k];
  }
  return decoded;
}

inline std::vector<int> all_rows(int rows) {
  std::vector<int> numbers(static_cast<size_t>(rows));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace quire::testing
