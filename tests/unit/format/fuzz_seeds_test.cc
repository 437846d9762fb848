// Rewrites the fuzzers' seeds: unit_format --gtest_also_run_disabled_tests --gtest_filter='*FuzzSeeds*'
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "paths.h"
#include "unit/format/gguf_bytes.h"

namespace quire {
namespace {

void write(const std::string& path, std::string_view content) {
  const auto file = source_dir() / "tests/fuzz/seeds" / path;
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << content;
}

TEST(FuzzSeeds, DISABLED_AreWritten) {
  write("gguf/rich", rich_gguf().text());
  write("gguf/empty", GgufBytes(0, 0, 2).text());
  GgufBytes all(43, 1);  // a block of every type
  all.key("general.alignment", GgufType::U32).number<uint32_t>(8);
  size_t end = 0;
  for (const TensorTypeInfo& t : tensor_types().first(43)) {
    all.tensor(t.name, {t.block_elements}, static_cast<uint32_t>(t.ggml_id), end);
    end = (end + t.block_bytes + 7) / 8 * 8;
  }
  all.pad(8).data(end);
  EXPECT_EQ(Gguf::parse(as_bytes(all.text()), "types").tensors().size(), 43u);
  write("gguf/types", all.text());

  const auto safetensors = [](std::string_view header, size_t data) {
    const uint64_t size = header.size();
    return std::string(reinterpret_cast<const char*>(&size), 8).append(header).append(data, '\1');
  };
  write("safetensors/two",
        safetensors(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                    R"("b":{"dtype":"BF16","shape":[1,3],"data_offsets":[8,14]}})",
                    14));
  write("safetensors/empty", safetensors("{}", 0));
  write("safetensors/config", R"({"eos_token_id":[1,2],"bos_token_id":1,"a":{"b":[0.5,1]},"text_config":{}})");
}

}  // namespace
}  // namespace quire
