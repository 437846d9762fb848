// Quantizers whose bytes are defined: those of bitsandbytes, and torch's rounding to E4M3 (data/quantize/libraries.safetensors,
// by make/make_solvers.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/half.h"
#include "format/safetensors.h"
#include "paths.h"
#include "quantize/solve/float_codes.h"
#include "quantize/solve/llm_int8.h"
#include "quantize/solve/table4.h"

namespace quire {
namespace {

const Safetensors& libraries() {
  static const Safetensors file = Safetensors::open(golden_dir() / "quantize/libraries.safetensors");
  return file;
}

template <class T>
std::vector<T> numbers(const std::string& name) {
  const TensorView* view = libraries().find_tensor(name);
  EXPECT_TRUE(view) << name;
  if (!view) return {};
  std::vector<T> values(view->bytes.size() / sizeof(T));
  std::memcpy(values.data(), view->bytes.data(), view->bytes.size());
  return values;
}

FloatMatrix library_weights() {
  const TensorView& view = *libraries().find_tensor("weight");
  FloatMatrix m(static_cast<int>(view.shape[0]), static_cast<int>(view.shape[1]));
  const auto halves = numbers<uint16_t>("weight");
  for (size_t i = 0; i < halves.size(); ++i) m.values[i] = bf16_to_f32(halves[i]);
  return m;
}

TEST(Libraries, RoundToTheSameFourBitCodes) {
  Team team(2);
  for (const auto kind : {Table4Matrix::Kind::kNf4, Table4Matrix::Kind::kFp4}) {
    for (const bool nested : {false, true}) {
      const std::string name = std::string(kind == Table4Matrix::Kind::kNf4 ? "nf4" : "fp4") + (nested ? "-dq" : "");
      SCOPED_TRACE(name);
      const Table4Matrix m = round_to_table4(library_weights(), kind, nested, team);
      const auto table = numbers<float>(name + ".quant_map");
      EXPECT_EQ(0, std::memcmp(table.data(), table_of(kind).data(), sizeof(float) * 16));
      const auto pairs = numbers<uint8_t>(name + ".codes");
      size_t others = 0;
      for (size_t i = 0; i < m.codes.size(); ++i) {
        const int code = i % 2 ? pairs[i / 2] & 15 : pairs[i / 2] >> 4;
        others += m.codes[i] != (code == 8 && table[8] == 0 ? 0 : code);  // 0 and 8 are FP4's zeros
      }
      EXPECT_EQ(others, 0u);
      if (!nested) {
        EXPECT_EQ(m.magnitudes, numbers<float>(name + ".absmax"));
        continue;
      }
      const auto map = numbers<float>(name + ".nested_quant_map");
      EXPECT_EQ(0, std::memcmp(map.data(), dynamic_map().data(), sizeof(float) * 256));
      EXPECT_EQ(m.nested, numbers<uint8_t>(name + ".absmax"));
      const float offset = numbers<float>(name + ".offset")[0];
      EXPECT_NEAR(m.offset, offset, 1e-6f * offset);  // torch sums in another order
      const auto scales = numbers<float>(name + ".nested_absmax");
      ASSERT_EQ(m.nested_scales.size(), scales.size());
      for (size_t i = 0; i < scales.size(); ++i) EXPECT_NEAR(m.nested_scales[i], scales[i], 1e-6f * scales[i]);
    }
  }
}

TEST(Libraries, RoundToTheSameInt8Rows) {
  Team team(2);
  const FloatMatrix weights = library_weights();
  const IntegerMatrix m = round_to_llm_int8(weights, team);
  const auto codes = numbers<int8_t>("int8.codes");
  const auto largest = numbers<float>("int8.SCB");
  for (int r = 0; r < m.rows; ++r) {
    const auto at = static_cast<size_t>(r);
    if (largest[at] > 0) {
      EXPECT_EQ(m.scales[at], largest[at] / 127) << r;
    }
    for (int c = 0; c < m.cols; ++c)
      ASSERT_EQ(m.codes_of(r)[c] - 128, codes[at * static_cast<size_t>(m.cols) + c]) << r << " " << c;
  }
}

TEST(Libraries, RoundToTheSameE4M3) {
  const auto from = numbers<float>("e4m3.numbers");
  const auto codes = numbers<uint8_t>("e4m3.codes");
  for (size_t i = 0; i < from.size(); ++i) ASSERT_EQ(e4m3_code(from[i]), codes[i]) << from[i];
}

}  // namespace
}  // namespace quire
