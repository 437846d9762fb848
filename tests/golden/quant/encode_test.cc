// Rows that ggml has quantized: what Quire writes for them loses no more.
#include "quant/encode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "golden_tensors.h"
#include "quant/blocks.h"

namespace quire {
namespace {

class GoldenEncoding : public testing::TestWithParam<TensorType> {};

TEST_P(GoldenEncoding, LosesNoMoreThanGgml) {
  const TensorTypeInfo& type = info(GetParam());
  const auto path = golden_file("formats/gguf-types", std::string(type.name) + ".natural.safetensors");
  ASSERT_TRUE(std::filesystem::exists(path)) << path;
  const GoldenTensors golden(path);
  const std::vector<float> source = golden.values<float>("source"), theirs = golden.values<float>("values");
  const size_t rows = std::stoul(golden.metadata()["rows"].get<std::string>()), cols = source.size() / rows;
  std::vector<std::byte> bytes(cols / type.block_elements * type.block_bytes);
  std::vector<float> ours(cols);
  double our_loss = 0, their_loss = 0;
  for (size_t row = 0; row < rows; ++row) {
    const auto x = std::span(source).subspan(row * cols, cols);
    ASSERT_EQ(encode_row(type.type, x, {}, bytes), EncodeResult::kDone);
    dequantize(type.type, bytes, ours);
    for (size_t i = 0; i < cols; ++i) {
      our_loss += std::pow(double{x[i]} - ours[i], 2);
      their_loss += std::pow(double{x[i]} - theirs[row * cols + i], 2);
    }
  }
  EXPECT_LE(our_loss, their_loss);
  RecordProperty("ratio", std::to_string(our_loss / their_loss));
}

INSTANTIATE_TEST_SUITE_P(AllTypes, GoldenEncoding, testing::ValuesIn(writable_types()),
                         [](const auto& test) { return std::string(name(test.param)); });

}  // namespace
}  // namespace quire
