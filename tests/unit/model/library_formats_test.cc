// What quantization libraries of 2026 write: ModelOpt, auto-round, MLX, torchao, HQQ and Quark. tests/golden/model has
// matrices of their own.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "unit/model/decoded_rows.h"
#include "unit/model/library_modules.h"

namespace quire::testing {
namespace {

using Module = QuantizedModule;
using Matrix = std::vector<std::vector<float>>;

Matrix weights_of(const Module& m) {
  const OpenedModule opened(m);
  return decoded_rows(*opened.matrix, all_rows(m.rows), m.cols);
}

Quantization settings_of(const nlohmann::json& config) {
  const nlohmann::json all = {{"quantization_config", config}};
  return read_quantization(JsonField::parse(all.dump(), "config.json")).value();
}

TEST(LibraryFormats, ReadRowsInAnyOrderAndUseEveryTensor) {
  for (const Module& m : {modelopt_nvfp4(), modelopt_awq(), modelopt_fp8(), modelopt_mxfp8(), auto_round(),
                          mlx(2),           mlx(3),         mlx(4),         mlx(5),           mlx(6),
                          mlx(8),           mlx_nvfp4(),    mlx_mxfp8(),    torchao_int8(),   torchao_int4(),
                          torchao_tiles(),  hqq(1),         hqq(2),         hqq(3),           hqq(4),
                          hqq(8),           hqq(4, 0),      hqq(3, 0),      quark_int4(),     quark_int4("uint4")}) {
    const OpenedModule opened(m);
    ASSERT_TRUE(opened.matrix) << m.config.dump();
    const Matrix all = decoded_rows(*opened.matrix, all_rows(m.rows), m.cols);
    const std::vector<int> rows = {15, 0, 7, 7, 8, 3};
    const Matrix some = decoded_rows(*opened.matrix, rows, m.cols);
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(some[i], all[static_cast<size_t>(rows[i])]) << m.config.dump();
    EXPECT_EQ(opened.used.size(), m.tensors.size()) << m.config.dump();
  }
}

TEST(ModelOpt, ReadsItsOwnFileOfSettings) {
  const auto folder = std::filesystem::temp_directory_path() / ("quire-modelopt-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const auto write = [&](const std::string& name, const nlohmann::json& json) {
    std::ofstream(folder / name) << json.dump();
  };
  write("config.json", {{"hidden_size", 64}});
  EXPECT_FALSE(read_quantization(HfConfig::open(folder)));
  write("hf_quant_config.json", {{"producer", {{"name", "modelopt"}}},
                                 {"quantization", {{"quant_algo", "FP8"}, {"kv_cache_quant_algo", "FP8"}}}});
  const auto q = read_quantization(HfConfig::open(folder));
  ASSERT_TRUE(q);
  EXPECT_EQ(q->method, "modelopt");
  EXPECT_EQ(q->find_scheme("model.layers.0.mlp.up_proj")->form, CodedForm::kFp8);
  EXPECT_TRUE(q->ignores("model.layers.0.self_attn.k_proj.k_scale"));
  EXPECT_TRUE(q->ignores("model.layers.0.self_attn.v_proj.v_bias"));
  EXPECT_FALSE(q->ignores("model.layers.0.self_attn.k_proj.bias"));
  write("config.json", {{"quantization_config", {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}}});
  EXPECT_EQ(read_quantization(HfConfig::open(folder))->find_scheme("m")->form, CodedForm::kNvfp4);
  std::filesystem::remove_all(folder);
}

TEST(ModelOpt, MayQuantizeTheCacheAlone) {
  const Quantization q =
      settings_of({{"quant_method", "modelopt"}, {"quant_algo", nullptr}, {"kv_cache_quant_algo", "FP8"}});
  EXPECT_TRUE(q.parts.empty());
  EXPECT_TRUE(q.ignores("model.layers.0.self_attn.k_proj.k_scale"));
}

TEST(ModelOpt, HasASchemeForEachLayerOfMixedPrecision) {
  const nlohmann::json nvfp4 = {{"quant_algo", "NVFP4"}, {"group_size", 16}}, fp8 = {{"quant_algo", "FP8"}};
  const Quantization q = settings_of({{"quant_method", "modelopt"},
                                      {"quant_algo", "MIXED_PRECISION"},
                                      {"quantized_layers", {{"a.up", nvfp4}, {"a.down", fp8}, {"b.up", nvfp4}}}});
  EXPECT_EQ(q.parts.size(), 2u);
  EXPECT_EQ(q.find_scheme("a.up")->form, CodedForm::kNvfp4);
  EXPECT_EQ(q.find_scheme("b.up")->form, CodedForm::kNvfp4);
  EXPECT_EQ(q.find_scheme("a.down")->form, CodedForm::kFp8);
  EXPECT_EQ(q.find_scheme("lm_head"), nullptr);
}

TEST(ModelOpt, TakesInt8InputsForW8A8Only) {
  const auto inputs_of = [](const char* algorithm) {
    return settings_of({{"quant_method", "modelopt"}, {"quant_algo", algorithm}}).parts[0].scheme.inputs.kind;
  };
  EXPECT_EQ(inputs_of("W8A8_SQ_PER_CHANNEL"), InputCodes::Kind::kPerToken);
  EXPECT_EQ(inputs_of("W8A16"), InputCodes::Kind::kNone);
  EXPECT_EQ(inputs_of("W4A8_AWQ"), InputCodes::Kind::kNone);
}

TEST(ModelOpt, HasOneScaleForABlockThatIsTheWholeMatrix) {
  Module m = modelopt_fp8("fp8_pb_wo");
  const Matrix whole = weights_of(m);
  m.add_scales("m.weight_scale", {1, 1, 1, 1});
  EXPECT_EQ(weights_of(m), whole);
}

TEST(AutoRound, ReadsZeroPointsAsItsPackingSays) {
  Module m = auto_round();
  for (size_t i = 0; i < 4; ++i) m.set("m.qzeros", i, 0x77777777u);
  const Matrix less_one = weights_of(m);
  for (size_t i = 0; i < 4; ++i) m.set("m.qzeros", i, 0x88888888u);
  for (const char* plain : {"auto_round", "auto_round:gptqmodel"}) {
    m.config["packing_format"] = plain;
    EXPECT_EQ(weights_of(m), less_one) << plain;
  }
  m.config["packing_format"] = "auto_round:auto_gptq";
  EXPECT_NE(weights_of(m), less_one);
  m.config["quant_method"] = "intel/auto-round";
  m.config.erase("packing_format");
  m.config["backend"] = "auto_round:exllamav2";
  EXPECT_EQ(weights_of(m), less_one);
}

TEST(AutoRound, HasSettingsOfItsOwnForModulesAndPatterns) {
  const Quantization q = settings_of({{"quant_method", "auto-round"},
                                      {"bits", 4},
                                      {"group_size", 128},
                                      {"sym", true},
                                      {"packing_format", "auto_round:auto_gptq"},
                                      {"extra_config",
                                       {{"model.layers.0.mlp.gate", {{"bits", 8}}},
                                        {".*k_proj.*", {{"bits", 2}, {"group_size", 32}, {"sym", false}}},
                                        {"lm_head", {{"bits", 16}}}}}});
  EXPECT_EQ(q.find_scheme("model.layers.0.mlp.gate")->bits, 8);
  EXPECT_EQ(q.find_scheme("model.layers.0.mlp.gate")->group, 128);
  EXPECT_EQ(q.find_scheme("model.layers.0.mlp.gate_proj")->bits, 4);
  const CodedScheme& k = *q.find_scheme("model.layers.3.self_attn.k_proj");
  EXPECT_EQ(k.bits, 2);
  EXPECT_EQ(k.group, 32);
  EXPECT_FALSE(k.symmetric);
  EXPECT_TRUE(q.find_scheme("model.layers.3.self_attn.q_proj")->symmetric);
}

TEST(Gptq, HasSettingsOfItsOwnForPatterns) {
  const Quantization q = settings_of({{"quant_method", "gptq"},
                                      {"bits", 4},
                                      {"group_size", 128},
                                      {"dynamic",
                                       {{"+:.*\\.down_proj", {{"bits", 8}, {"group_size", 32}, {"desc_act", true}}},
                                        {".*\\.k_proj", {{"bits", 3}}},
                                        {"-:lm_head", nlohmann::json::object()}}}});
  const CodedScheme& down = *q.find_scheme("model.layers.0.mlp.down_proj");
  EXPECT_EQ(down.bits, 8);
  EXPECT_EQ(down.group, 32);
  EXPECT_TRUE(down.act_order);
  EXPECT_EQ(q.find_scheme("model.layers.0.self_attn.k_proj")->bits, 3);
  EXPECT_EQ(q.find_scheme("model.layers.0.self_attn.k_proj")->group, 128);
  EXPECT_EQ(q.find_scheme("model.layers.0.mlp.up_proj")->bits, 4);
}

TEST(Mlx, TakesBitsAndGroupsOfUnnamedModulesFromTheirShapes) {
  Module m = mlx(8);
  const Matrix eight = weights_of(m);
  m.config["bits"] = 4;
  m.config["group_size"] = 64;
  EXPECT_EQ(weights_of(m), eight);
  m.config["m"] = {{"bits", 8}, {"group_size", 32}};
  EXPECT_EQ(weights_of(m), eight);
  m.config["m"] = false;  // not quantized, it says; the tensors tell
  EXPECT_EQ(weights_of(m), eight);
  Module floats = mlx_nvfp4();
  const Matrix four = weights_of(floats);
  floats.config = {{"bits", 4}, {"group_size", 64}, {"mode", "affine"}};
  EXPECT_EQ(weights_of(floats), four);
}

TEST(Mlx, HasItsSettingsUnderAKeyOfItsOwn) {
  const nlohmann::json settings = {{"bits", 4}, {"group_size", 64}};
  const auto method_of = [](const nlohmann::json& config) {
    return read_quantization(JsonField::parse(config.dump(), "config.json"))->method;
  };
  EXPECT_EQ(method_of({{"quantization", settings}}), "mlx");
  EXPECT_EQ(method_of({{"quantization", settings}, {"quantization_config", settings}}), "mlx");
  nlohmann::json other = settings;
  other["quant_method"] = "gptq";
  EXPECT_EQ(method_of({{"quantization", settings}, {"quantization_config", other}}), "gptq");
  other["quant_method"] = "auto-round";
  EXPECT_EQ(method_of({{"quantization", settings}, {"quantization_config", other}}), "auto-round");
  other["packing_format"] = "mlx";
  EXPECT_EQ(method_of({{"quantization", settings}, {"quantization_config", other}}), "mlx");
}

TEST(Mlx, HasAStackOfExperts) {
  Module m = mlx();
  const Matrix first = weights_of(m);
  for (const char* name : {"m.weight", "m.scales", "m.biases"}) {
    auto& t = m.at(name);
    const std::vector<uint8_t> one = t.bytes;
    t.shape.insert(t.shape.begin(), 3);
    t.bytes.insert(t.bytes.begin(), 2 * one.size(), uint8_t{1});
  }
  m.items = 3;
  m.item = 2;
  EXPECT_EQ(weights_of(m), first);
  m.item = 1;
  EXPECT_NE(weights_of(m), first);
}

TEST(Torchao, MultipliesInt8InputsWhereItsSettingsDo) {
  Module m = torchao_int8();
  EXPECT_EQ(OpenedModule(m).matrix->inputs, InputCodes{});
  m.config["quant_type"]["default"]["_type"] = "Int8DynamicActivationInt8WeightConfig";
  EXPECT_EQ(OpenedModule(m).matrix->inputs, InputCodes{.kind = InputCodes::Kind::kPerToken});
}

TEST(Torchao, HasNoZeroPointsWhereAllAreZero) {
  Module m = torchao_int8();
  EXPECT_EQ(OpenedModule(m).matrix->format.zeros, ZeroKind::kInteger);
  std::ranges::fill(m.at("m._weight_zero_point").bytes, uint8_t{0});
  EXPECT_EQ(OpenedModule(m).matrix->format.zeros, ZeroKind::kConstant);
}

TEST(Torchao, HasTheSameWeightsInTilesAndInPairs) {
  Module tiles = torchao_tiles(), pairs = torchao_int4();
  for (size_t g = 0; g < 2; ++g) {
    for (size_t row = 0; row < kRows; ++row) {
      pairs.set("m._weight_scale", g * kRows + row,
                tiles.get<float>("m._weight_scale_and_zero", (g * kRows + row) * 2));
      pairs.set("m._weight_zero_point", g * kRows + row,
                tiles.get<float>("m._weight_scale_and_zero", (g * kRows + row) * 2 + 1));
    }
  }
  // As a tensor core's lanes have them.
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t i = 0; i < kCols; ++i) {
      const size_t tile = i / 32, lane = row % 8 * 4 + i % 8 / 2, value = i % 32 / 8 * 2 + i % 2;  // v[0] to v[7]
      constexpr size_t kNibble[] = {0, 4, 1, 5, 2, 6, 3, 7};
      const auto word = tiles.get<uint32_t>("m._weight_qdata", ((row / 8 * 8 + tile / 4) * 32 + lane) * 4 + tile % 4);
      const uint32_t code = (word >> 4 * kNibble[value] & 15) ^ 8;
      auto& byte = pairs.at("m._weight_qdata").bytes[row * kCols / 2 + i / 2];
      byte = static_cast<uint8_t>(i % 2 == 0 ? (byte & 0xf0) | code : (byte & 0x0f) | code << 4);
    }
  }
  EXPECT_EQ(weights_of(tiles), weights_of(pairs));
}

TEST(Hqq, GivesNumbersWhereGroupsLieAcrossRows) {
  EXPECT_EQ(OpenedModule(hqq(4, 0)).matrix->format, PanelFormat{});
  EXPECT_EQ(OpenedModule(hqq(4)).matrix->format.codes, Codes::kU4);
  EXPECT_EQ(OpenedModule(hqq(8)).matrix->format.codes, Codes::kI8);
}

TEST(Quark, HasOtherSettingsForLayersOfAPattern) {
  Module m = quark_int4();
  m.config["layer_quant_config"] = {{"*.k_proj", {{"weight", {{"dtype", "fp8_e4m3"}, {"qscheme", "per_tensor"}}}}},
                                    {"*.v_proj", {{"weight", nullptr}}}};
  const Quantization q = settings_of(m.config);
  EXPECT_EQ(q.find_scheme("model.layers.0.self_attn.k_proj")->form, CodedForm::kFp8);
  EXPECT_EQ(q.find_scheme("model.layers.0.self_attn.k_proj_norm")->form, CodedForm::kQuarkInt4);
  EXPECT_EQ(q.find_scheme("model.layers.0.self_attn.v_proj")->form, CodedForm::kQuarkInt4);
}

TEST(Quark, HasSignedCodesAndOrdersOfItsOwn) {
  Module reordered = quark_int4("uint4"), in_order = reordered, with_sign = reordered;
  in_order.config["export"]["pack_method"] = "order";
  constexpr int kReordered[] = {0, 16, 4, 20, 8, 24, 12, 28};
  for (const auto& [name, words] : {std::pair{"m.weight", kCols * kRows / 8}, {"m.weight_zero_point", 2 * kRows / 8}}) {
    for (size_t w = 0; w < static_cast<size_t>(words); ++w) {
      const auto word = reordered.get<uint32_t>(name, w);
      uint32_t plain = 0;
      for (int i = 0; i < 8; ++i) plain |= (word >> kReordered[i] & 15) << 4 * i;
      in_order.set(name, w, plain);
      with_sign.set(name, w, word ^ 0x88888888u);
    }
  }
  quark_weight(with_sign)["dtype"] = "int4";
  EXPECT_EQ(weights_of(in_order), weights_of(reordered));
  EXPECT_EQ(weights_of(with_sign), weights_of(reordered));
}

}  // namespace
}  // namespace quire::testing
