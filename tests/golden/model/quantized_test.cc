// Layers of quantized Hugging Face checkpoints, packed by the methods' own libraries, have the weights that these read.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "format/safetensors.h"
#include "model/quantized/coded_matrix.h"
#include "model/quantized/input_transforms.h"
#include "paths.h"
#include "unit/model/decoded_rows.h"

namespace quire {
namespace {

using testing::decoded_rows;

// METHOD/CASE of all layers, here and in ../shared, which has the same ones with all rows.
std::vector<std::filesystem::path> layers() {
  std::vector<std::filesystem::path> found;
  for (const auto& folder : golden_folders("formats/hf-layers")) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (entry.path().filename() == "layer.safetensors") found.push_back(entry.path().parent_path());
    }
  }
  std::ranges::sort(found);
  return found;
}

std::string case_of(const std::filesystem::path& layer) {
  const std::string name = layer.filename().string(), method = layer.parent_path().filename().string();
  return method == "hf-layers" ? name : method + "/" + name;
}

struct Layer {
  explicit Layer(const std::filesystem::path& folder)
      : quantization(read_quantization(JsonField::read(folder / "config.json")).value()),
        file(Safetensors::open(folder / "layer.safetensors")),
        expected(Safetensors::open(folder / "expected.safetensors")) {}

  std::optional<CodedMatrix> open(const CodedMatrixName& name) {
    const FindTensor find = [&](const std::string& tensor) {
      used.insert(tensor);
      return file.find_tensor(tensor);
    };
    return open_coded_matrix(quantization, file.file(), find, name);
  }

  // The numbers of the rows that the file of expected values has.
  std::vector<int> rows_of(const std::string& tensor) const {
    const TensorView& all = *expected.find_tensor(tensor);
    const TensorView* some = expected.find_tensor(tensor + ".rows");
    if (!some) return testing::all_rows(static_cast<int>(all.shape[all.shape.size() - 2]));
    std::vector<int> rows(some->shape[0]);
    std::memcpy(rows.data(), some->bytes.data(), some->bytes.size());
    return rows;
  }
  // item: of a stack.
  std::vector<float> row_of(const std::string& tensor, size_t row, size_t item = 0) const {
    const TensorView& t = *expected.find_tensor(tensor);
    std::vector<float> values(t.shape.back());
    const size_t rows = t.shape[t.shape.size() - 2], bytes = values.size() * sizeof(float);
    std::memcpy(values.data(), t.bytes.data() + (item * rows + row) * bytes, bytes);
    return values;
  }

  Quantization quantization;
  Safetensors file, expected;
  std::set<std::string> used;
};

// Values that take two roundings to compute.
bool is_rounded_twice(const std::string& name) {
  for (const char* part : {"nvfp4", "-dq", "block128", "mlx/8bit", "hqq/8bit"})
    if (name.find(part) != name.npos) return true;
  return false;
}

// How many float32 numbers lie between two.
int64_t distance(float a, float b) {
  const auto place = [](float x) {
    const auto bits = std::bit_cast<int32_t>(x);
    return int64_t{bits < 0 ? std::numeric_limits<int32_t>::min() - bits : bits};
  };
  return std::abs(place(a) - place(b));
}

void expect_weights(const std::vector<float>& weights, const std::vector<float>& expected, int64_t allowed, int row) {
  ASSERT_EQ(weights.size(), expected.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    ASSERT_LE(distance(weights[i], expected[i]), allowed)
        << "row " << row << ", input " << i << ": " << weights[i] << ", expected " << expected[i];
  }
}

TEST(GoldenLayers, CoverEveryMethod) {
  std::set<std::string> methods;
  for (const auto& layer : layers()) methods.insert(Layer(layer).quantization.method);
  EXPECT_EQ(methods, (std::set<std::string>{"auto-round", "awq", "bitsandbytes", "compressed-tensors", "fp8", "gptq",
                                            "hqq", "mlx", "modelopt", "mxfp4", "quark", "torchao"}));
  EXPECT_GE(layers().size(), 95u);
}

TEST(GoldenLayers, HaveTheWeightsThatTheirLibrariesRead) {
  for (const auto& folder : layers()) {
    const std::string name = case_of(folder);
    if (name == "gpt-oss-mxfp4") continue;
    SCOPED_TRACE(folder.string());
    Layer layer(folder);
    const std::vector<int> rows = layer.rows_of("weight");
    const auto x = layer.expected.find_tensor("weight");
    const TensorView* bias = layer.file.find_tensor("proj.bias");
    int all = rows.back() + 1;
    if (bias) {
      EXPECT_EQ(bias->shape[0], static_cast<uint64_t>(all));
    }
    const auto cols = static_cast<int>(x->shape.back());
    const auto matrix = layer.open({.module = "proj", .rows = all, .cols = cols});
    ASSERT_TRUE(matrix);
    const int group = matrix->format.group;
    EXPECT_TRUE(group == 16 || group % 32 == 0) << group;
    EXPECT_EQ(name.find("descact") != name.npos && group < cols, !matrix->permutation.empty());
    const auto decoded = decoded_rows(*matrix, rows, cols);
    for (size_t i = 0; i < rows.size(); ++i)
      expect_weights(decoded[i], layer.row_of("weight", i), is_rounded_twice(name) ? 1 : 0, rows[i]);
    for (const TensorView& tensor : layer.file.tensors())
      EXPECT_TRUE(layer.used.contains(tensor.name) || tensor.name == "proj.bias" || has_input_factors(tensor))
          << tensor.name;
  }
}

TEST(GoldenLayers, HaveTheExpertsOfGptOss) {
  for (const auto& root : golden_folders("formats/hf-layers")) {
    Layer layer(root / "gpt-oss-mxfp4");
    for (const std::string matrix : {"gate_up_proj", "down_proj"}) {
      SCOPED_TRACE(root.string() + " " + matrix);
      const std::string out_in = matrix + "_out_in";
      const TensorView& blocks = *layer.file.find_tensor("mlp.experts." + matrix + "_blocks");
      const auto experts = static_cast<int>(blocks.shape[0]), all = static_cast<int>(blocks.shape[1]),
                 cols = static_cast<int>(blocks.shape[2] * 32);
      const std::vector<int> rows = layer.rows_of(out_in);
      ASSERT_EQ(experts, 3);
      ASSERT_FALSE(rows.empty());
      for (int e = 0; e < experts; ++e) {
        const auto expert =
            layer.open({.module = "mlp.experts." + matrix, .rows = all, .cols = cols, .item = e, .items = experts});
        ASSERT_TRUE(expert);
        const auto decoded = decoded_rows(*expert, rows, cols);
        for (size_t i = 0; i < rows.size(); ++i)
          expect_weights(decoded[i], layer.row_of(out_in, i, static_cast<size_t>(e)), 0, rows[i]);
      }
    }
  }
}

// The formats that kernels are made for, not some other one with the same weights.
TEST(GoldenLayers, HaveTheFormatsOfTheirMethods) {
  const auto format_of = [](const std::string& name, int rows, int cols) {
    return Layer(golden_dir() / "formats/hf-layers" / name)
        .open({.module = "proj", .rows = rows, .cols = cols})
        ->format;
  };
  const auto integers = [](Codes codes, ZeroKind zeros, int zero, int group) {
    return PanelFormat{.codes = codes, .scale = ScaleKind::kF32, .zeros = zeros, .zero = zero, .group = group};
  };
  const auto constant = ZeroKind::kConstant, integer = ZeroKind::kInteger;
  EXPECT_EQ(format_of("gptq/4bit-g128-sym", 192, 256), integers(Codes::kU4, constant, 8, 128));
  EXPECT_EQ(format_of("gptq/4bit-gm1-sym", 192, 256), integers(Codes::kU4, constant, 8, 256));
  EXPECT_EQ(format_of("gptq/3bit-g128-sym", 192, 256), integers(Codes::kU3, constant, 4, 128));
  EXPECT_EQ(format_of("gptq/2bit-g64-asym", 192, 256), integers(Codes::kU2, integer, 0, 64));
  EXPECT_EQ(format_of("gptq/8bit-g128-sym", 192, 256), integers(Codes::kI8, constant, 0, 128));
  EXPECT_EQ(format_of("gptq/8bit-gm1-asym-descact", 192, 256), integers(Codes::kI8, integer, 0, 256));
  EXPECT_EQ(format_of("awq/g64", 192, 256), integers(Codes::kU4, integer, 0, 64));
  EXPECT_EQ(format_of("compressed-tensors/w4a16-g128-sym", 192, 256), integers(Codes::kU4, constant, 8, 128));
  EXPECT_EQ(format_of("compressed-tensors/w8a16-pack", 192, 256), integers(Codes::kI8, constant, 0, 128));
  EXPECT_EQ(format_of("compressed-tensors/w8a8-int", 192, 256), integers(Codes::kI8, constant, 0, 256));
  EXPECT_EQ(format_of("compressed-tensors/fp8-block128-partial", 130, 384), integers(Codes::kE4M3, constant, 0, 128));
  EXPECT_EQ(format_of("bnb/int8", 192, 256), integers(Codes::kI8, constant, 0, 256));
  EXPECT_EQ(format_of("bnb/nf4-dq-short-last-block", 7, 100), PanelFormat{});  // float32
  EXPECT_EQ(format_of("bnb/nf4", 192, 256).codes, Codes::kFloat4);
  EXPECT_EQ(format_of("compressed-tensors/nvfp4a16", 192, 256).scale, ScaleKind::kE4M3);
  EXPECT_EQ(format_of("compressed-tensors/mxfp4", 192, 256).scale, ScaleKind::kE8M0);
}

TEST(GoldenLayers, WantInt8InputsWhereTheirMethodComputesSo) {
  const auto inputs_of = [](const std::string& name, int rows, int cols) {
    return Layer(golden_dir() / "formats/hf-layers" / name)
        .open({.module = "proj", .rows = rows, .cols = cols})
        ->inputs;
  };
  using Kind = InputCodes::Kind;
  EXPECT_EQ(inputs_of("compressed-tensors/w8a8-int", 192, 256), InputCodes{.kind = Kind::kPerToken});
  EXPECT_EQ(inputs_of("bnb/int8", 192, 256), (InputCodes{.kind = Kind::kOutliers, .threshold = 6}));
  EXPECT_EQ(inputs_of("compressed-tensors/fp8-tensor-static", 192, 256), InputCodes{});
  EXPECT_EQ(inputs_of("compressed-tensors/nvfp4-bias", 130, 384), InputCodes{});
  EXPECT_EQ(inputs_of("compressed-tensors/w8a16-pack", 192, 256), InputCodes{});
}

}  // namespace
}  // namespace quire
