// Small modules as quantization libraries save them, for tests that change something in them: ModelOpt, auto-round, MLX,
// torchao, HQQ and Quark.
#pragma once

#include "unit/model/quantized_module.h"

namespace quire::testing {

inline QuantizedModule modelopt_nvfp4() {
  QuantizedModule m;
  m.config = {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}, {"ignore", {"lm_head"}}};
  m.add("m.weight", TensorType::U8, {kRows, kCols / 2});
  m.add("m.weight_scale", TensorType::F8_E4M3, {kRows, kCols / 16});
  m.add_numbers("m.weight_scale_2", TensorType::F32, {}, std::vector<float>{0.25f});
  m.add_scales("m.input_scale", {});
  return m;
}
inline QuantizedModule modelopt_awq() {
  QuantizedModule m;
  m.config = {{"quant_method", "modelopt"}, {"quant_algo", "W4A16_AWQ"}};
  m.add("m.weight", TensorType::U8, {kRows / 2, kCols});
  m.add_scales("m.weight_scale", {kRows, 2});
  return m;
}
inline QuantizedModule modelopt_fp8(const std::string& algorithm = "FP8") {
  QuantizedModule m;
  m.config = {{"quant_method", "modelopt"}, {"quant_algo", algorithm}};
  m.add("m.weight", TensorType::F8_E4M3, {kRows, kCols});
  m.add_scales("m.weight_scale", {});
  return m;
}
inline QuantizedModule modelopt_mxfp8() {
  QuantizedModule m = modelopt_fp8("MXFP8");
  m.add("m.weight_scale", TensorType::U8, {kRows, 2});
  return m;
}

inline QuantizedModule auto_round() {
  QuantizedModule m = gptq();
  m.tensors.erase("m.g_idx");
  m.config = {{"quant_method", "auto-round"},
              {"bits", 4},
              {"group_size", 32},
              {"sym", false},
              {"data_type", "int"},
              {"packing_format", "auto_round:auto_gptq"}};
  return m;
}

inline QuantizedModule mlx(uint64_t bits = 4) {
  QuantizedModule m;
  m.config = {{"bits", bits}, {"group_size", 32}, {"mode", "affine"}};
  m.add("m.weight", TensorType::U32, {kRows, kCols * bits / 32});
  m.add_scales("m.scales", {kRows, 2});
  m.add_scales("m.biases", {kRows, 2});
  return m;
}
inline QuantizedModule mlx_floats(const std::string& mode, uint64_t bits, uint64_t group) {
  QuantizedModule m;
  m.config = {{"bits", bits}, {"group_size", group}, {"mode", mode}};
  m.add("m.weight", TensorType::U32, {kRows, kCols * bits / 32});
  m.add("m.scales", TensorType::U8, {kRows, kCols / group});
  return m;
}
inline QuantizedModule mlx_nvfp4() { return mlx_floats("nvfp4", 4, 16); }
inline QuantizedModule mlx_mxfp8() { return mlx_floats("mxfp8", 8, 32); }

inline QuantizedModule torchao(const std::string& type) {
  QuantizedModule m;
  m.config = {{"quant_method", "torchao"},
              {"quant_type", {{"default", {{"_type", type}, {"_data", {{"group_size", 32}}}}}}}};
  return m;
}
inline QuantizedModule torchao_int8() {
  QuantizedModule m = torchao("Int8WeightOnlyConfig");
  m.add("m._weight_qdata", TensorType::I8, {kRows, kCols});
  m.add_scales("m._weight_scale", {kRows, 2});
  m.add("m._weight_zero_point", TensorType::I8, {kRows, 2});
  return m;
}
inline QuantizedModule torchao_int4() {
  QuantizedModule m = torchao("Int4WeightOnlyConfig");
  m.add("m._weight_qdata", TensorType::U8, {kRows, kCols / 2});
  m.add_scales("m._weight_scale", {2, kRows});
  m.add_scales("m._weight_zero_point", {2, kRows});
  return m;
}
// Tiles of 8 outputs and 8 * 16 inputs.
inline QuantizedModule torchao_tiles() {
  QuantizedModule m = torchao("Int4WeightOnlyConfig");
  m.add("m._weight_qdata", TensorType::I32, {kRows / 8, 8, 32, 4});
  m.add_scales("m._weight_scale_and_zero", {1024 / 32, kRows, 2});
  return m;
}

inline QuantizedModule hqq(int bits = 4, int axis = 1) {
  QuantizedModule m;
  m.config = {{"quant_method", "hqq"},
              {"quant_config", {{"weight_quant_params", {{"nbits", bits}, {"group_size", 32}}}}}};
  const uint64_t groups = kRows * kCols / 32, tall = axis == 1 ? groups : 32, wide = axis == 1 ? 32 : groups;
  const uint64_t parts = bits == 3 ? 10 : static_cast<uint64_t>(8 / bits);
  m.add("m.W_q", bits == 3 ? TensorType::I32 : TensorType::U8, {(tall + parts - 1) / parts, wide});
  const std::vector<uint64_t> shape = axis == 1 ? std::vector<uint64_t>{groups, 1} : std::vector<uint64_t>{1, groups};
  m.add_scales("m.scale", shape);
  m.add_scales("m.zero", shape);
  m.add_numbers("m.nbits", TensorType::I32, {}, std::vector<int32_t>{bits});
  m.add_numbers("m.axis", TensorType::I32, {}, std::vector<int32_t>{axis});
  m.add_numbers("m.group_size", TensorType::I32, {}, std::vector<int32_t>{32});
  m.add_numbers("m.shape", TensorType::I64, {2}, std::vector<int64_t>{kRows, kCols});
  m.add("m.view_as_float", TensorType::U8, {}, {0});
  m.add("m.quant_scale", TensorType::U8, {}, {0});
  m.add("m.packing", TensorType::U8, {7});
  return m;
}

inline QuantizedModule quark_int4(const std::string& type = "int4") {
  QuantizedModule m;
  m.config = {{"quant_method", "quark"},
              {"export", {{"pack_method", "reorder"}, {"weight_format", "real_quantized"}}},
              {"global_quant_config",
               {{"weight", {{"dtype", type}, {"qscheme", "per_group"}, {"group_size", 32}, {"symmetric", false}}}}}};
  m.add("m.weight", TensorType::I32, {kCols, kRows / 8});
  m.add("m.weight_zero_point", TensorType::I32, {2, kRows / 8});
  m.add_scales("m.weight_scale", {2, kRows});
  return m;
}
inline nlohmann::json& quark_weight(QuantizedModule& m) { return m.config["global_quant_config"]["weight"]; }

}  // namespace quire::testing
