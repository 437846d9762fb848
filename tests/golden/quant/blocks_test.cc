// Every loadable block type gives the bits of ggml's own to_float.
#include "quant/blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "paths.h"

namespace quire {
namespace {

// A reader without checks, for files of our own: the quant library does not link the format library.
struct Golden {
  MappedFile file;
  nlohmann::json header;
  std::span<const std::byte> data;

  explicit Golden(const std::filesystem::path& path) : file(path) {
    uint64_t size = 0;
    std::memcpy(&size, file.bytes().data(), 8);
    const auto* text = reinterpret_cast<const char*>(file.bytes().data()) + 8;
    header = nlohmann::json::parse(text, text + size);
    data = file.bytes().subspan(8 + size);
  }
  std::span<const std::byte> tensor(const char* name) const {
    const auto& offsets = header[name]["data_offsets"];
    const auto begin = offsets[0].get<size_t>();
    return data.subspan(begin, offsets[1].get<size_t>() - begin);
  }
};

std::filesystem::path golden_file(const TensorTypeInfo& type, const char* kind) {
  const std::string name = std::string(type.name) + "." + kind + ".safetensors";
  const auto folders = golden_folders("formats/gguf-types");
  const auto path = folders.front() / name;
  return std::filesystem::exists(path) ? path : folders.back() / name;
}

class GoldenBlocks : public testing::TestWithParam<std::tuple<TensorTypeInfo, const char*>> {};

TEST_P(GoldenBlocks, HaveTheValuesGgmlReads) {
  const auto& [type, kind] = GetParam();
  const auto path = golden_file(type, kind);
  ASSERT_TRUE(std::filesystem::exists(path)) << path;
  const Golden golden(path);
  const auto& about = golden.header["__metadata__"];
  EXPECT_EQ(about["ggml_type_id"], std::to_string(type.ggml_id));
  EXPECT_EQ(about["block_elements"], std::to_string(type.block_elements));
  EXPECT_EQ(about["block_bytes"], std::to_string(type.block_bytes));
  if (!type.loadable) return;

  const auto expected = golden.tensor("values");
  std::vector<float> values(expected.size() / sizeof(float));
  dequantize(type.type, golden.tensor("bytes"), values);
  size_t different = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::memcmp(&values[i], &expected[i * sizeof(float)], sizeof(float)) == 0) continue;
    float want = 0;
    std::memcpy(&want, &expected[i * sizeof(float)], sizeof(float));
    if (++different <= 5) ADD_FAILURE() << "element " << i << ": " << values[i] << ", expected " << want;
  }
  EXPECT_EQ(different, 0u) << "of " << values.size();
}

// The loadable types, and those whose block size the data at hand tells.
std::vector<TensorTypeInfo> types() {
  std::vector<TensorTypeInfo> out;
  for (const auto& t : tensor_types()) {
    if (t.loadable || std::filesystem::exists(golden_file(t, "natural"))) out.push_back(t);
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(AllTypes, GoldenBlocks,
                         testing::Combine(testing::ValuesIn(types()), testing::Values("natural", "hostile")),
                         [](const auto& p) {
                           return std::string(std::get<0>(p.param).name) + "_" + std::get<1>(p.param);
                         });

}  // namespace
}  // namespace quire
