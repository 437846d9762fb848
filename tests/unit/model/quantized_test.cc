#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/half.h"
#include "unit/model/decoded_rows.h"
#include "unit/model/quantized_module.h"

namespace quire::testing {
namespace {

using Module = QuantizedModule;
using WeightRows = std::vector<std::vector<float>>;

WeightRows decoded(const OpenedModule& opened, const Module& m) {
  return decoded_rows(*opened.matrix, all_rows(m.rows), m.cols);
}
WeightRows decoded(const Module& m) { return decoded(OpenedModule(m), m); }

// weight(row, input) for all.
WeightRows expected(const Module& m, const std::function<float(size_t, size_t)>& weight) {
  WeightRows all(static_cast<size_t>(m.rows), std::vector<float>(static_cast<size_t>(m.cols)));
  for (size_t row = 0; row < all.size(); ++row) {
    for (size_t i = 0; i < all[row].size(); ++i) all[row][i] = weight(row, i);
  }
  return all;
}

// Field `i` of `bits` bits of a stream that begins with word `first`, each word `step` after the one before.
int field(Module& m, const std::string& tensor, int bits, size_t i, size_t first = 0, size_t step = 1) {
  int value = 0;
  for (size_t b = 0; b < static_cast<size_t>(bits); ++b) {
    const size_t bit = i * static_cast<size_t>(bits) + b;
    value |= static_cast<int>(m.get<uint32_t>(tensor, first + bit / 32 * step) >> bit % 32 & 1) << b;
  }
  return value;
}

std::vector<int32_t> shuffled_groups(int cols) {
  std::vector<int32_t> groups(static_cast<size_t>(cols));
  for (int i = 0; i < cols; ++i) groups[static_cast<size_t>(i)] = i / 32;
  std::shuffle(groups.begin(), groups.end(), std::mt19937(7));
  return groups;
}

PanelFormat integers(Codes codes, ZeroKind zeros, int zero) {
  return {.codes = codes, .scale = ScaleKind::kF32, .zeros = zeros, .zero = zero, .group = 32};
}

TEST(Gptq, ReadsEveryWidthAndOrderOfGroups) {
  for (const int bits : {2, 3, 4, 8}) {
    for (const bool shuffled : {false, true}) {
      SCOPED_TRACE(fmt::format("{} bits, {}", bits, shuffled ? "shuffled" : "in order"));
      Module m = gptq(bits);
      m.config["checkpoint_format"] = "gptq_v2";
      if (shuffled) m.add_numbers("m.g_idx", TensorType::I32, {kCols}, shuffled_groups(kCols));
      const auto b = static_cast<uint64_t>(bits);
      const auto want = expected(m, [&](size_t row, size_t i) {
        const auto g = static_cast<size_t>(m.get<int32_t>("m.g_idx", i));
        const int code = field(m, "m.qweight", bits, i, row, kRows),
                  zero = field(m, "m.qzeros", bits, row, g * ((kRows * b + 31) / 32));
        return m.get<float>("m.scales", g * kRows + row) * static_cast<float>(code - zero);
      });
      const OpenedModule opened(m);
      EXPECT_EQ(opened.matrix->permutation.empty(), !shuffled);
      EXPECT_EQ(decoded(opened, m), want);
    }
  }
}

TEST(Gptq, KeepsTheOrderOfInputsInAGroup) {
  Module m = gptq();
  m.set<int32_t>("m.g_idx", 3, 1);
  m.set<int32_t>("m.g_idx", 40, 0);
  const OpenedModule opened(m);
  const auto& order = opened.matrix->permutation;
  EXPECT_TRUE(std::is_sorted(order.begin(), order.begin() + 32));
  EXPECT_TRUE(std::is_sorted(order.begin() + 32, order.end()));
  EXPECT_EQ(order[31], 40);
  EXPECT_EQ(order[32], 3);
}

TEST(Gptq, UndoesTheBorrowOfZeroPointsLessOne) {
  for (const int bits : {2, 3, 4, 8}) {
    SCOPED_TRACE(fmt::format("{} bits", bits));
    Module m = gptq(bits);
    m.config["checkpoint_format"] = "gptq_v2";
    const size_t words = m.at("m.qzeros").bytes.size() / sizeof(uint32_t) / 2;
    // Zero points 1, 0, 2, 0, 0, 1, ...
    std::vector<uint8_t> packed(m.at("m.qzeros").bytes.size());
    const std::vector<int> zeros = {1, 0, 2, 0, 0, 1, 3, 0, 1, 1, 0, 2, 0, 3, 3, 0};
    for (size_t g = 0; g < 2; ++g) {
      for (size_t n = 0; n < kRows; ++n) {
        for (size_t b = 0; b < static_cast<size_t>(bits); ++b) {
          const size_t bit = g * words * 32 + n * static_cast<size_t>(bits) + b;
          packed[bit / 8] = static_cast<uint8_t>(packed[bit / 8] | (zeros[n] >> b & 1) << bit % 8);
        }
      }
    }
    m.at("m.qzeros").bytes = packed;
    const WeightRows want = decoded(m);
    // Subtracts one from every field of a word, or of all words of 3 bits, with borrows, as writers do.
    m.config["checkpoint_format"] = "gptq";
    for (size_t g = 0; g < 2; ++g) {
      uint64_t borrow = 0;
      for (size_t w = 0; w < words; ++w) {
        uint64_t ones = 0;
        for (size_t bit = w * 32; bit < w * 32 + 32; ++bit)
          ones |= uint64_t{bit % static_cast<size_t>(bits) == 0} << bit % 32;
        if (bits != 3) borrow = 0;
        const uint64_t word = m.get<uint32_t>("m.qzeros", g * words + w), less = ones + borrow;
        borrow = word < less ? 1 : 0;
        m.set("m.qzeros", g * words + w, static_cast<uint32_t>(word - less));
      }
    }
    EXPECT_EQ(decoded(m), want);
  }
}

TEST(Gptq, HasAConstantZeroOnlyWhereAllAreInTheMiddle) {
  Module m = gptq();
  m.config["sym"] = true;
  EXPECT_EQ(OpenedModule(m).matrix->format, integers(Codes::kU4, ZeroKind::kInteger, 0));
  for (size_t i = 0; i < 4; ++i) m.set("m.qzeros", i, 0x77777777u);
  EXPECT_EQ(OpenedModule(m).matrix->format, integers(Codes::kU4, ZeroKind::kConstant, 8));
  m.set("m.qzeros", 3, 0x76777777u);
  EXPECT_EQ(OpenedModule(m).matrix->format, integers(Codes::kU4, ZeroKind::kInteger, 0));
  m.set("m.qzeros", 3, 0x77777777u);
  m.config["sym"] = false;  // so that all matrices of a model have one format
  EXPECT_EQ(OpenedModule(m).matrix->format, integers(Codes::kU4, ZeroKind::kInteger, 0));
}

TEST(Gptq, ReadsAPartialLastGroup) {
  Module m = gptq();
  m.config["checkpoint_format"] = "gptq_v2";
  m.config["desc_act"] = false;
  m.cols = 72;
  m.tensors.erase("m.g_idx");
  m.add("m.qweight", TensorType::I32, {9, kRows});
  m.add("m.qzeros", TensorType::I32, {3, 2});
  m.add_scales("m.scales", {3, kRows});
  const auto want = expected(m, [&](size_t row, size_t i) {
    const int code = field(m, "m.qweight", 4, i, row, kRows), zero = field(m, "m.qzeros", 4, row, i / 32 * 2);
    return m.get<float>("m.scales", i / 32 * kRows + row) * static_cast<float>(code - zero);
  });
  EXPECT_EQ(decoded(m), want);
  m.add_numbers("m.g_idx", TensorType::I32, {72}, shuffled_groups(72));
  EXPECT_EQ(OpenedModule(m).matrix->permutation.size(), 72u);
  EXPECT_NE(decoded(m), want);
}

TEST(CompressedTensors, ReadPackedIntegersWithZeroPointsAndAnyOrderOfGroups) {
  for (const int bits : {4, 8}) {
    Module m = packed_int(bits);
    m.add_numbers("m.weight_g_idx", TensorType::I32, {kCols}, shuffled_groups(kCols));
    const auto words = static_cast<size_t>(kCols * bits / 32);
    const auto want = expected(m, [&](size_t row, size_t i) {
      const auto g = static_cast<size_t>(m.get<int32_t>("m.weight_g_idx", i));
      const int code = field(m, "m.weight_packed", bits, i, row * words),
                zero = field(m, "m.weight_zero_point", bits, row, g, 2);
      return m.get<float>("m.weight_scale", row * 2 + g) * static_cast<float>(code - zero);
    });
    EXPECT_EQ(decoded(m), want) << bits;
  }
}

TEST(CompressedTensors, TakeAnOrderOfMinusOnesForNone) {
  Module m = packed_int();
  m.add_numbers("m.weight_g_idx", TensorType::I32, {kCols}, std::vector<int32_t>(kCols, -1));
  EXPECT_TRUE(OpenedModule(m).matrix->permutation.empty());
}

TEST(CompressedTensors, ReadInt8WithZeroPointsAndStaticInputs) {
  Module m = int8_static();
  const OpenedModule opened(m);
  EXPECT_EQ(opened.matrix->inputs, (InputCodes{.kind = InputCodes::Kind::kStatic, .scale = 0.5f}));
  EXPECT_EQ(decoded(opened, m), expected(m, [&](size_t row, size_t i) {
              return m.get<float>("m.weight_scale", row) *
                     static_cast<float>(m.get<int8_t>("m.weight", row * kCols + i) -
                                        m.get<int8_t>("m.weight_zero_point", row));
            }));
  EXPECT_EQ(opened.used.size(), m.tensors.size());
}

TEST(CompressedTensors, DropInputSchemesThatQuireIsCloserWithout) {
  const auto inputs_of = [](const nlohmann::json& inputs) {
    Module m = int8_static();
    group_of(m)["input_activations"] = inputs;
    return OpenedModule(m).matrix->inputs;
  };
  EXPECT_EQ(inputs_of(nullptr), InputCodes{});
  EXPECT_EQ(inputs_of({{"num_bits", 8}, {"type", "float"}, {"strategy", "token"}, {"dynamic", true}}), InputCodes{});
  EXPECT_EQ(inputs_of({{"num_bits", 4}, {"type", "int"}, {"strategy", "token"}, {"dynamic", true}}), InputCodes{});
  EXPECT_EQ(inputs_of({{"num_bits", 8}, {"symmetric", false}, {"strategy", "token"}, {"dynamic", true}}), InputCodes{});
  EXPECT_EQ(inputs_of({{"num_bits", 8}, {"strategy", "token"}, {"dynamic", true}}),
            InputCodes{.kind = InputCodes::Kind::kPerToken});
}

TEST(CompressedTensors, HaveASchemeForEachGroupOfModules) {
  const auto group = [](const nlohmann::json& targets, int bits) {
    return nlohmann::json{{"targets", targets},
                          {"format", bits == 8 ? "int-quantized" : "pack-quantized"},
                          {"weights", {{"num_bits", bits}, {"type", "int"}, {"strategy", "channel"}}}};
  };
  const nlohmann::json config = {{"quantization_config",
                                  {{"quant_method", "compressed-tensors"},
                                   {"format", "mixed-precision"},
                                   {"config_groups",
                                    {{"a", group({"Linear"}, 4)},
                                     {"b", group({"re:.*layers\\.\\d+\\.down$", "re:x"}, 8)},
                                     {"c", group({"layers.3.down"}, 4)}}}}}};
  auto text = config.dump();
  const auto q = read_quantization(JsonField::parse(text, "config.json")).value();
  const auto form_of = [&](std::string_view module) { return q.find_scheme(module)->form; };
  EXPECT_EQ(form_of("layers.2.down"), CodedForm::kInt8);
  EXPECT_EQ(form_of("layers.3.down"), CodedForm::kPackedInt);
  EXPECT_EQ(form_of("layers.2.up"), CodedForm::kPackedInt);
  EXPECT_EQ(form_of("layers.2.downs"), CodedForm::kPackedInt);
  EXPECT_EQ(form_of("x.up"), CodedForm::kInt8);
  EXPECT_EQ(form_of("up.x"), CodedForm::kPackedInt);  // patterns match at the beginning
}

TEST(Float8, ReadsScalesOfTensorsRowsAndBlocks) {
  const auto weight = [](Module& m, size_t row, size_t i, float scale) {
    std::vector<uint8_t> code{m.at("m.weight").bytes[row * kCols + i]};
    std::vector<uint32_t> one{std::bit_cast<uint32_t>(1.0f)};
    std::vector<float> value(1);
    decode_row({.codes = Codes::kE4M3, .scale = ScaleKind::kF32, .group = 32}, 1, {code, one, {}, {}, {}}, value);
    return value[0] * scale;
  };
  Module tensor = fp8_static();
  EXPECT_EQ(decoded(tensor), expected(tensor, [&](size_t row, size_t i) { return weight(tensor, row, i, 0.5f); }));
  EXPECT_EQ(OpenedModule(tensor).used.size(), 3u);
  // As Mistral's files spell it.
  Module inverse = tensor;
  inverse.tensors.erase("m.weight_scale");
  inverse.tensors.erase("m.input_scale");
  inverse.add_scales("m.weight_scale_inv", {});
  inverse.add_scales("m.activation_scale", {});
  EXPECT_EQ(decoded(inverse), decoded(tensor));
  EXPECT_EQ(OpenedModule(inverse).used.size(), 3u);
  Module channel = float8();
  EXPECT_EQ(decoded(channel), expected(channel, [&](size_t row, size_t i) {
              return weight(channel, row, i, channel.get<float>("m.weight_scale", row));
            }));
  Module block = fp8_blocks();
  EXPECT_EQ(decoded(block), expected(block, [&](size_t row, size_t i) {
              return weight(block, row, i, block.get<float>("m.weight_scale_inv", row / 8 * 2 + i / 32));
            }));
  block.add("m.weight_scale_inv", TensorType::F8_E8M0, {2, 2}, {127, 128, 126, 0});
  EXPECT_EQ(decoded(block), expected(block, [&](size_t row, size_t i) {
              const float scales[] = {1, 2, 0.5f, 0x1p-127f};
              return weight(block, row, i, scales[row / 8 * 2 + i / 32]);
            }));
}

TEST(BitsAndBytes, ReadCodesStoredAsAnotherType) {
  Module m = bnb4(false);
  const WeightRows want = decoded(m);
  EXPECT_EQ(OpenedModule(m).matrix->format.codes, Codes::kFloat4);
  m.at("m.weight").type = TensorType::BF16;
  m.at("m.weight").shape = {kRows * kCols / 4, 1};
  EXPECT_EQ(decoded(m), want);
}

TEST(BitsAndBytes, GiveNumbersWhereBlocksDoNotFitRows) {
  Module m = bnb4();
  const WeightRows whole = decoded(m);
  m.rows = kRows / 2;
  m.cols = 2 * kCols;
  auto state = state_of(m);
  state["shape"] = {m.rows, m.cols};
  set_state(m, state);
  EXPECT_EQ(OpenedModule(m).matrix->format.codes, Codes::kFloat4);
  m.rows = kRows * kCols / 16;
  m.cols = 16;
  state["shape"] = {m.rows, m.cols};
  set_state(m, state);
  EXPECT_EQ(OpenedModule(m).matrix->format, PanelFormat{});
  const WeightRows numbers = decoded(m);
  for (size_t i = 0; i < kRows * kCols; ++i) ASSERT_EQ(numbers[i / 16][i % 16], whole[i / kCols][i % kCols]) << i;
}

TEST(GptOss, HasTheExpertsOneAfterTheOther) {
  Module m = gpt_oss();
  const WeightRows second = decoded(m);
  m.item = 0;
  const WeightRows first = decoded(m);
  EXPECT_NE(first, second);
  auto& blocks = m.at("m_blocks").bytes;
  auto& scales = m.at("m_scales").bytes;
  std::rotate(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(blocks.size() / 3), blocks.end());
  std::rotate(scales.begin(), scales.begin() + static_cast<std::ptrdiff_t>(scales.size() / 3), scales.end());
  EXPECT_EQ(decoded(m), second);
}

TEST(CodedMatrix, ReadsRowsInAnyOrder) {
  for (const Module& m : {gptq(), gptq(3), awq(), packed_int(), int8_static(), float8("block"), nvfp4(), mxfp4(),
                          bnb4(), bnb8(), gpt_oss()}) {
    const OpenedModule opened(m);
    const WeightRows all = decoded(opened, m);
    const std::vector<int> rows = {15, 0, 7, 7, 8, 3};
    const WeightRows some = decoded_rows(*opened.matrix, rows, m.cols);
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(some[i], all[static_cast<size_t>(rows[i])]) << m.config.dump();
    EXPECT_EQ(opened.used.size(), m.tensors.size()) << m.config.dump();
  }
}

TEST(CodedMatrix, IsNoneForPlainAndMissingWeights) {
  for (Module m : {gptq(), awq(), packed_int(), float8(), fp8_static(), bnb4(), bnb8(), gpt_oss()}) {
    m.tensors.clear();
    EXPECT_FALSE(OpenedModule(m).matrix);
    for (const TensorType type : {TensorType::F32, TensorType::F16, TensorType::BF16}) {
      m.add("m.weight", type, {kRows, kCols});
      EXPECT_FALSE(OpenedModule(m).matrix);
    }
  }
}

TEST(Quantization, ComesFromAnyPlaceInConfigJson) {
  const auto method_of = [](const std::string& config) -> std::string {
    const auto q = read_quantization(JsonField::parse(config, "config.json"));
    return q ? q->method : "none";
  };
  EXPECT_EQ(method_of(R"({"hidden_size": 8})"), "none");
  EXPECT_EQ(method_of(R"({"quantization_config": null})"), "none");
  EXPECT_EQ(method_of(R"({"text_config": {"quantization_config": {"quant_method": "mxfp4"}}})"), "mxfp4");
  EXPECT_EQ(method_of(R"({"compression_config": {"format": "dense", "config_groups": {}}})"), "compressed-tensors");
  EXPECT_EQ(method_of(R"({"quantization_config": {"load_in_8bit": true}})"), "bitsandbytes");
}

TEST(Quantization, IgnoresScalesOfQuantizedCaches) {
  const auto ignores = [](const Module& m, std::string_view tensor) {
    const nlohmann::json config = {{"quantization_config", m.config}};
    return read_quantization(JsonField::parse(config.dump(), "config.json"))->ignores(tensor);
  };
  EXPECT_TRUE(ignores(float8(), "layers.0.self_attn.k_scale"));
  EXPECT_TRUE(ignores(fp8_static(), "layers.0.self_attn.attn.v_scale"));
  EXPECT_FALSE(ignores(float8(), "layers.0.mlp.up.weight_scale"));
  EXPECT_FALSE(ignores(gptq(), "layers.0.self_attn.k_scale"));
}

}  // namespace
}  // namespace quire::testing
