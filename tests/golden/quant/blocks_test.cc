// Every block type that can be read gives the bits of ggml's own to_float.
#include "quant/blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <filesystem>

#include "golden_tensors.h"
#include "quant/gguf_blocks.h"

namespace quire {
namespace {

std::filesystem::path golden_blocks(const TensorTypeInfo& type, const char* kind) {
  return golden_file("formats/gguf-types", std::string(type.name) + "." + kind + ".safetensors");
}

class GoldenBlocks : public ::testing::TestWithParam<std::tuple<TensorTypeInfo, const char*>> {};

TEST_P(GoldenBlocks, HaveTheValuesGgmlReads) {
  const auto& [type, kind] = GetParam();
  const auto path = golden_blocks(type, kind);
  ASSERT_TRUE(std::filesystem::exists(path)) << path;
  const GoldenTensors golden(path);
  EXPECT_EQ(golden.metadata()["ggml_type_id"], std::to_string(type.ggml_id));
  EXPECT_EQ(golden.metadata()["block_elements"], std::to_string(type.block_elements));
  EXPECT_EQ(golden.metadata()["block_bytes"], std::to_string(type.block_bytes));

  const auto expected = golden.values<float>("values");
  std::vector<float> values(expected.size());
  dequantize(type.type, golden.bytes("bytes"), values);
  size_t different = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::bit_cast<uint32_t>(values[i]) == std::bit_cast<uint32_t>(expected[i])) continue;
    if (++different <= 5) ADD_FAILURE() << "element " << i << ": " << values[i] << ", expected " << expected[i];
  }
  EXPECT_EQ(different, 0u) << "of " << values.size();
}

std::vector<TensorTypeInfo> readable_types() {
  std::vector<TensorTypeInfo> out;
  for (const auto& t : tensor_types()) {
    if (has_panel_format(t.type)) out.push_back(t);
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(AllTypes, GoldenBlocks,
                         ::testing::Combine(::testing::ValuesIn(readable_types()),
                                            ::testing::Values("natural", "hostile")),
                         [](const auto& p) {
                           return std::string(std::get<0>(p.param).name) + "_" + std::get<1>(p.param);
                         });

}  // namespace
}  // namespace quire
