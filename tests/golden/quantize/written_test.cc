// Matrices that Quire wrote as each method's files have them: its own readers give the weights that the methods' libraries
// give (data/quantize/written.safetensors, by make/make_written.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "base/half.h"
#include "format/safetensors.h"
#include "json/field.h"
#include "model/convert/rows.h"
#include "model/quantized/coded_matrix.h"
#include "paths.h"

namespace quire {
namespace {

constexpr const char* kModule = "model.layers.0.self_attn.k_proj";

TEST(Written, DirectoriesAreReadAsTheirLibrariesReadThem) {
  const Safetensors file = Safetensors::open(golden_dir() / "quantize/written.safetensors");
  const JsonField cases = JsonField::read(golden_dir() / "quantize/written.json");
  size_t count = 0;
  for (const auto& [name, config] : cases.members()) {
    SCOPED_TRACE(name);
    const JsonField wrapped(Json{{"quantization_config", config.json()}}, "config.json");
    const auto quantization = read_quantization(wrapped);
    ASSERT_TRUE(quantization);
    const std::string prefix = std::string(name) + "/";
    const FindTensor find = [&](const std::string& tensor) { return file.find_tensor(prefix + tensor); };
    const TensorView* expected = file.find_tensor(prefix + "expected");
    ASSERT_TRUE(expected);
    const int rows = static_cast<int>(expected->shape[0]), cols = static_cast<int>(expected->shape[1]);

    auto coded =
        open_coded_matrix(*quantization, "written.safetensors", find, {.module = kModule, .rows = rows, .cols = cols});
    ASSERT_TRUE(coded);
    const FileMatrix matrix{nullptr, 0, 1, rows, cols, false, std::make_shared<const CodedMatrix>(std::move(*coded))};
    std::vector<float> row(static_cast<size_t>(cols));
    size_t others = 0;
    for (int r = 0; r < rows; ++r) {
      read_row(matrix, r, 0, row);
      for (size_t c = 0; c < row.size(); ++c) {
        uint16_t half;
        std::memcpy(&half, expected->bytes.data() + 2 * (static_cast<size_t>(r) * row.size() + c), 2);
        others += f16_to_f32(f32_to_f16(row[c])) != f16_to_f32(half);
      }
    }
    // LLM.int8's readers multiply in another order than Quire, which may move a float16 that lies between two.
    EXPECT_LE(others, name == "llm-int8" ? row.size() : 0u);
    ++count;
  }
  EXPECT_EQ(count, 18u);
}

}  // namespace
}  // namespace quire
