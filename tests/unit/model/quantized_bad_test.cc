// Quantized modules that are damaged, or that Quire cannot read, are refused with the place and the reason.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "error_of.h"
#include "unit/model/decoded_rows.h"
#include "unit/model/library_modules.h"
#include "unit/model/quantized_module.h"

namespace quire::testing {
namespace {

using Module = QuantizedModule;

std::string problem_with(const Module& m) {
  return error_of([&] {
    const OpenedModule opened(m);
    if (!opened.matrix) throw invalid("has no codes");
    decoded_rows(*opened.matrix, all_rows(m.rows), m.cols);
  });
}

struct Case {
  std::string name;
  Module (*make)();
  std::function<void(Module&)> damage;
  std::string message;
};

Module gptq4() { return gptq(); }
Module packed4() { return packed_int(); }
Module float8_channel() { return float8(); }
Module float8_block() { return float8("block"); }
Module bnb4_nested() { return bnb4(); }
Module bnb4_plain() { return bnb4(false); }
Module modelopt_awq4() { return modelopt_awq(); }
Module modelopt_blocks() { return modelopt_fp8("FP8_PB_WO"); }
Module mlx4() { return mlx(); }
Module hqq4() { return hqq(); }
Module quark4() { return quark_int4(); }

std::function<void(Module&)> config(const std::string& key, const nlohmann::json& value) {
  return [=](Module& m) { m.config[key] = value; };
}
std::function<void(Module&)> weights(const std::string& key, const nlohmann::json& value) {
  return [=](Module& m) { group_of(m)["weights"][key] = value; };
}
std::function<void(Module&)> state(const std::string& key, const nlohmann::json& value) {
  return [=](Module& m) {
    nlohmann::json changed = state_of(m);
    changed[key] = value;
    set_state(m, changed);
  };
}
std::function<void(Module&)> without(const std::string& tensor) {
  return [=](Module& m) { m.tensors.erase(tensor); };
}
std::function<void(Module&)> shaped(const std::string& tensor, const std::vector<uint64_t>& shape) {
  return [=](Module& m) { m.add(tensor, m.at(tensor).type, shape); };
}
std::function<void(Module&)> typed(const std::string& tensor, TensorType type) {
  return [=](Module& m) { m.add(tensor, type, std::vector<uint64_t>(m.at(tensor).shape)); };
}
template <class T>
std::function<void(Module&)> valued(const std::string& tensor, size_t index, T value) {
  return [=](Module& m) { m.set<T>(tensor, index, value); };
}

const float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"method unknown", gptq4, config("quant_method", "quip"),
       "config.json: quantization_config.quant_method: \"quip\" is not supported; Quire reads gptq, awq, "
       "compressed-tensors, fp8, bitsandbytes, mxfp4, modelopt, auto-round, mlx, torchao, hqq, quark"},
      {"method missing", gptq4, [](Module& m) { m.config.erase("quant_method"); },
       "config.json: quantization_config.quant_method is missing"},
      {"method of a number", gptq4, config("quant_method", 4),
       "config.json: quantization_config.quant_method: expected a string, found 4"},
      {"gptq 5 bits", gptq4, config("bits", 5),
       "config.json: quantization_config.bits: 5 is not supported for gptq; use 2, 3, 4 or 8"},
      {"gptq no bits", gptq4, [](Module& m) { m.config.erase("bits"); },
       "config.json: quantization_config.bits is missing"},
      {"gptq bits of a string", gptq4, config("bits", "4"),
       "config.json: quantization_config.bits: expected an integer from -2147483648 to 2147483647, found \"4\""},
      {"gptq group 48", gptq4, config("group_size", 48),
       "config.json: quantization_config.group_size: 48 is not supported for gptq; use 16, a multiple of 32, or -1 for "
       "whole rows"},
      {"gptq group 0", gptq4, config("group_size", 0),
       "config.json: quantization_config.group_size: 0 is not supported for gptq; use 16, a multiple of 32, or -1 for "
       "whole rows"},
      {"gptq group -2", gptq4, config("group_size", -2),
       "config.json: quantization_config.group_size: expected an integer from -1 to 1048576, found -2"},
      {"gptq marlin", gptq4, config("checkpoint_format", "marlin"),
       "config.json: quantization_config.checkpoint_format: \"marlin\" is not supported for gptq; use gptq or gptq_v2"},
      {"gptq marlin flag", gptq4, config("is_marlin_format", true),
       "config.json: quantization_config.is_marlin_format: true is not supported for gptq; the layout must be gptq or "
       "gptq_v2"},
      {"gptq packed in int64", gptq4, config("pack_dtype", "int64"),
       "config.json: quantization_config.pack_dtype: \"int64\" is not supported for gptq; use int32"},
      {"gptq own bits of a module", gptq4, config("dynamic", {{"+:.*down.*", {{"bits", 5}}}}),
       "config.json: quantization_config.dynamic.+:.*down.*.bits: 5 is not supported for gptq; use 2, 3, 4 or 8"},
      {"gptq sym of a string", gptq4, config("sym", "yes"),
       "config.json: quantization_config.sym: expected true or false, found \"yes\""},
      {"gptq other group", gptq4, config("group_size", 64), "F: tensor m.qzeros has shape [2, 2], expected [1, 2]"},
      {"gptq other bits", gptq4, config("bits", 8), "F: tensor m.qweight has shape [8, 16], expected [16, 16]"},
      {"gptq qweight shape", gptq4, shaped("m.qweight", {8, 15}),
       "F: tensor m.qweight has shape [8, 15], expected [8, 16]"},
      {"gptq qweight type", gptq4, typed("m.qweight", TensorType::U32),
       "F: tensor m.qweight has type U32, expected I32"},
      {"gptq no scales", gptq4, without("m.scales"), "F: tensor m.scales is missing; the quantized module m needs it"},
      {"gptq no zeros", gptq4, without("m.qzeros"), "F: tensor m.qzeros is missing; the quantized module m needs it"},
      {"gptq no g_idx", gptq4, without("m.g_idx"), "F: tensor m.g_idx is missing; the quantized module m needs it"},
      {"gptq scales shape", gptq4, shaped("m.scales", {1, 16}),
       "F: tensor m.scales has shape [1, 16], expected [2, 16]"},
      {"gptq scales type", gptq4, typed("m.scales", TensorType::I32),
       "F: tensor m.scales has type I32, expected F32, F16 or BF16"},
      {"gptq zeros shape", gptq4, shaped("m.qzeros", {2, 3}), "F: tensor m.qzeros has shape [2, 3], expected [2, 2]"},
      {"gptq NaN scale", gptq4, valued("m.scales", 19, kNan),
       "F: tensor m.scales has the scale nan for output 3; the file is damaged"},
      {"gptq infinite scale", gptq4, valued("m.scales", 3, kInfinity),
       "F: tensor m.scales has the scale inf for output 3; the file is damaged"},
      {"gptq g_idx shape", gptq4, shaped("m.g_idx", {63}), "F: tensor m.g_idx has shape [63], expected [64]"},
      {"gptq g_idx type", gptq4, typed("m.g_idx", TensorType::F32),
       "F: tensor m.g_idx has type F32, expected I32 or I64"},
      {"gptq g_idx too large", gptq4, valued("m.g_idx", 5, int32_t{2}),
       "F: tensor m.g_idx has input 5 in group 2, but there are 2 groups of 32"},
      {"gptq g_idx negative", gptq4, valued("m.g_idx", 6, int32_t{-1}),
       "F: tensor m.g_idx has input 6 in group -1, but there are 2 groups of 32"},
      {"gptq g_idx uneven", gptq4, valued("m.g_idx", 7, int32_t{1}),
       "F: tensor m.g_idx has 31 inputs in group 0, expected 32"},
      {"gptq other rows", gptq4, [](Module& m) { m.rows = 24; },
       "F: tensor m.qweight has shape [8, 16], expected [8, 24]"},
      {"awq 8 bits", awq, config("bits", 8),
       "config.json: quantization_config.bits: 8 is not supported for awq; use 4"},
      {"awq gemv", awq, config("version", "gemv"),
       "config.json: quantization_config.version: \"gemv\" is not supported for awq; use gemm"},
      {"awq symmetric", awq, config("zero_point", false),
       "config.json: quantization_config.zero_point: false is not supported for awq; use true"},
      {"awq no zeros", awq, without("m.qzeros"), "F: tensor m.qzeros is missing; the quantized module m needs it"},
      {"awq qweight shape", awq, shaped("m.qweight", {64, 3}),
       "F: tensor m.qweight has shape [64, 3], expected [64, 2]"},
      {"awq NaN scale", awq, valued("m.scales", 20, kNan),
       "F: tensor m.scales has the scale nan for output 4; the file is damaged"},
      {"awq odd outputs", awq, [](Module& m) { m.rows = 12; },
       "F: tensor m.qweight has 12 outputs, expected a multiple of 8"},
      {"packed 3 bits", packed4, weights("num_bits", 3),
       "config.json: quantization_config.config_groups.group_0.weights.num_bits: 3 is not supported for "
       "compressed-tensors pack-quantized; use 4 or 8"},
      {"packed floats", packed4, weights("type", "float"),
       "config.json: quantization_config.config_groups.group_0.weights.type: \"float\" is not supported for "
       "compressed-tensors pack-quantized; use int"},
      {"packed type unknown", packed4, weights("type", "complex"),
       "config.json: quantization_config.config_groups.group_0.weights.type: \"complex\" is not supported for "
       "compressed-tensors; use int or float"},
      {"packed strategy unknown", packed4, weights("strategy", "random"),
       "config.json: quantization_config.config_groups.group_0.weights.strategy: \"random\" is not supported for "
       "compressed-tensors; use tensor, channel, group, block or tensor_group"},
      {"packed format unknown", packed4, config("format", "marlin-24"),
       "config.json: quantization_config.format: \"marlin-24\" is not supported for compressed-tensors; use "
       "pack-quantized, int-quantized, float-quantized, naive-quantized, nvfp4-pack-quantized or mxfp4-pack-quantized"},
      {"packed no format", packed4, [](Module& m) { m.config.erase("format"); },
       "config.json: quantization_config.format is missing"},
      {"packed sparse", packed4, config("sparsity_config", {{"format", "sparse-24-bitmask"}}),
       "config.json: quantization_config.sparsity_config.format: \"sparse-24-bitmask\" is not supported for "
       "compressed-tensors; use dense"},
      {"packed transformed", packed4, config("transform_config", {{"config_groups", {{"u", {{"type", "hadamard"}}}}}}),
       "config.json: quantization_config.transform_config.config_groups.u.apply is missing"},
      {"packed no targets", packed4, [](Module& m) { group_of(m).erase("targets"); },
       "config.json: quantization_config.config_groups.group_0.targets is missing"},
      {"packed other target", packed4,
       [](Module& m) {
         group_of(m)["targets"] = {"n", "re:.*n$"};
       },
       "F: tensor m.weight_packed is quantized, but no group of config_groups in config.json targets m"},
      {"packed bad pattern", packed4, [](Module& m) { group_of(m)["targets"] = {"re:(m"}; },
       "config.json: quantization_config.config_groups.group_0.targets[0]: the pattern does not compile: missing "
       "closing parenthesis"},
      {"packed no scale", packed4, without("m.weight_scale"),
       "F: tensor m.weight_scale is missing; the quantized module m needs it"},
      {"packed no zeros", packed4, without("m.weight_zero_point"),
       "F: tensor m.weight_zero_point is missing; the quantized module m needs it"},
      {"packed no g_idx", packed4, without("m.weight_g_idx"),
       "F: tensor m.weight_g_idx is missing; the quantized module m needs it"},
      {"packed shape", packed4, shaped("m.weight_packed", {16, 9}),
       "F: tensor m.weight_packed has shape [16, 9], expected [16, 8]"},
      {"packed other shape", packed4, valued("m.weight_shape", 1, int64_t{63}),
       "F: tensor m.weight_shape is [16, 63], expected [16, 64]"},
      {"packed scale shape", packed4, shaped("m.weight_scale", {2, 16}),
       "F: tensor m.weight_scale has shape [2, 16], expected [16, 2]"},
      {"packed zeros type", packed4, typed("m.weight_zero_point", TensorType::I8),
       "F: tensor m.weight_zero_point has type I8, expected I32"},
      {"packed g_idx uneven", packed4, valued("m.weight_g_idx", 40, int32_t{0}),
       "F: tensor m.weight_g_idx has 33 inputs in group 0, expected 32"},
      {"int8 4 bits", int8_static, weights("num_bits", 4),
       "config.json: quantization_config.config_groups.group_0.weights.num_bits: 4 is not supported for "
       "compressed-tensors int-quantized; use 8"},
      {"int8 no input scale", int8_static, without("m.input_scale"),
       "F: tensor m.input_scale is missing; the quantized module m needs it"},
      {"int8 input scale 0", int8_static, valued("m.input_scale", 0, 0.0f),
       "F: tensor m.input_scale is 0, expected a positive number"},
      {"int8 scale infinite", int8_static, valued("m.weight_scale", 4, -kInfinity),
       "F: tensor m.weight_scale has the scale -inf for output 4; the file is damaged"},
      {"int8 zeros shape", int8_static, shaped("m.weight_zero_point", {16}),
       "F: tensor m.weight_zero_point has shape [16], expected [16, 1]"},
      {"int8 weight type", int8_static, typed("m.weight", TensorType::U8),
       "F: tensor m.weight has type U8, expected I8"},
      {"float8 asymmetric", float8_channel, weights("symmetric", false),
       "config.json: quantization_config.config_groups.group_0.weights.symmetric: false is not supported for "
       "compressed-tensors float-quantized; use true"},
      {"float8 no scale", float8_channel, without("m.weight_scale"),
       "F: tensor m.weight_scale is missing; the quantized module m needs it"},
      {"float8 scale negative", float8_channel, valued("m.weight_scale", 9, -1.0f),
       "F: tensor m.weight_scale has the scale -1 for output 9; the file is damaged"},
      {"float8 weight NaN", float8_channel, valued("m.weight", 64 * 11 + 2, uint8_t{0xff}),
       "F: tensor m.weight has the value nan for output 11; the file is damaged"},
      {"float8 E5M2", float8_channel, typed("m.weight", TensorType::F8_E5M2),
       "F: tensor m.weight has type F8_E5M2, expected F8_E4M3"},
      {"float8 block of one number", float8_block, weights("block_structure", {8}),
       "config.json: quantization_config.config_groups.group_0.weights.block_structure: expected two numbers, "
       "[outputs, inputs]"},
      {"float8 block of 24 inputs", float8_block, weights("block_structure", {8, 24}),
       "config.json: quantization_config.config_groups.group_0.weights.block_structure[1]: 24 is not supported for "
       "compressed-tensors; use 16 or a multiple of 32"},
      {"float8 no block", float8_block, [](Module& m) { group_of(m)["weights"].erase("block_structure"); },
       "config.json: quantization_config.config_groups.group_0.weights.block_structure is missing"},
      {"float8 blocks shape", float8_block, shaped("m.weight_scale", {2, 1}),
       "F: tensor m.weight_scale has shape [2, 1], expected [2, 2]"},
      {"fp8 E5M2", fp8_blocks, config("fmt", "e5m2"),
       "config.json: quantization_config.fmt: \"e5m2\" is not supported for fp8; use e4m3 or float8_e4m3fn"},
      {"fp8 scheme unknown", fp8_blocks, config("activation_scheme", "sometimes"),
       "config.json: quantization_config.activation_scheme: \"sometimes\" is not supported for fp8; use dynamic or "
       "static"},
      {"fp8 block 0", fp8_blocks, config("weight_block_size", {0, 32}),
       "config.json: quantization_config.weight_block_size[0]: expected an integer from 1 to 1048576, found 0"},
      {"fp8 no scales", fp8_blocks, without("m.weight_scale_inv"),
       "F: tensor m.weight_scale_inv is missing; the quantized module m needs it"},
      {"fp8 scale NaN", fp8_blocks, valued("m.weight_scale_inv", 2, kNan),
       "F: tensor m.weight_scale_inv has the scale nan for output 8; the file is damaged"},
      {"fp8 scale of two", fp8_static, shaped("m.weight_scale", {2}),
       "F: tensor m.weight_scale has shape [2], expected [1], [], [1, 1], [16, 1] or [16]"},
      {"fp8 names that are numbers", fp8_static, config("ignored_layers", {1}),
       "config.json: quantization_config.ignored_layers[0]: expected a string, found 1"},
      {"nvfp4 other group", nvfp4, weights("group_size", 32),
       "config.json: quantization_config.config_groups.group_0.weights.group_size: 32 is not supported for "
       "compressed-tensors nvfp4-pack-quantized; use 16"},
      {"nvfp4 no global scale", nvfp4, without("m.weight_global_scale"),
       "F: tensor m.weight_global_scale is missing; the quantized module m needs it"},
      {"nvfp4 global scale 0", nvfp4, valued("m.weight_global_scale", 0, 0.0f),
       "F: tensor m.weight_global_scale is 0, expected a positive number"},
      {"nvfp4 global scale NaN", nvfp4, valued("m.weight_global_scale", 0, kNan),
       "F: tensor m.weight_global_scale is nan, expected a positive number"},
      {"nvfp4 scale negative", nvfp4, valued("m.weight_scale", 5, uint8_t{0x81}),
       "F: tensor m.weight_scale has the scale code 129 for output 1; the file is damaged"},
      {"nvfp4 scale NaN", nvfp4, valued("m.weight_scale", 5, uint8_t{0x7f}),
       "F: tensor m.weight_scale has the scale code 127 for output 1; the file is damaged"},
      {"nvfp4 scale type", nvfp4, typed("m.weight_scale", TensorType::U8),
       "F: tensor m.weight_scale has type U8, expected F8_E4M3"},
      {"mxfp4 other group", mxfp4, weights("group_size", 64),
       "config.json: quantization_config.config_groups.group_0.weights.group_size: 64 is not supported for "
       "compressed-tensors mxfp4-pack-quantized; use 32"},
      {"mxfp4 scale NaN", mxfp4, valued("m.weight_scale", 31, uint8_t{255}),
       "F: tensor m.weight_scale has the scale code 255 for output 15; the file is damaged"},
      {"mxfp4 codes shape", mxfp4, shaped("m.weight_packed", {16, 64}),
       "F: tensor m.weight_packed has shape [16, 64], expected [16, 32]"},
      {"gpt-oss no scales", gpt_oss, without("m_scales"),
       "F: tensor m_scales is missing; the quantized module m needs it"},
      {"gpt-oss experts", gpt_oss, [](Module& m) { m.items = 4; },
       "F: tensor m_blocks has shape [3, 16, 2, 16], expected [4, 16, 2, 16]"},
      {"gpt-oss scale NaN", gpt_oss, valued("m_scales", 32 + 7, uint8_t{255}),
       "F: tensor m_scales has the scale code 255 for output 3; the file is damaged"},
      {"gpt-oss rows of 48", gpt_oss, [](Module& m) { m.cols = 48; },
       "F: tensor m_blocks has rows of 48 inputs, expected a multiple of 32"},
      {"bitsandbytes both", bnb4_plain, config("load_in_8bit", true),
       "config.json: quantization_config: load_in_4bit and load_in_8bit are both true; exactly one must be true"},
      {"bitsandbytes neither", bnb4_plain, config("load_in_4bit", false),
       "config.json: quantization_config: load_in_4bit and load_in_8bit are both false; exactly one must be true"},
      {"bnb4 int4", bnb4_plain, config("bnb_4bit_quant_type", "int4"),
       "config.json: quantization_config.bnb_4bit_quant_type: \"int4\" is not supported for bitsandbytes; use fp4 or "
       "nf4"},
      {"bnb4 no absmax", bnb4_plain, without("m.weight.absmax"),
       "F: tensor m.weight.absmax is missing; the quantized module m needs it"},
      {"bnb4 no map", bnb4_plain, without("m.weight.quant_map"),
       "F: tensor m.weight.quant_map is missing; the quantized module m needs it"},
      {"bnb4 no state", bnb4_plain, without("m.weight.quant_state.bitsandbytes__nf4"),
       "F: tensor m.weight.quant_state.bitsandbytes__nf4 (or __fp4) is missing; the quantized module m needs it"},
      {"bnb4 state of another type", bnb4_plain, typed("m.weight.quant_state.bitsandbytes__nf4", TensorType::I8),
       "F: tensor m.weight.quant_state.bitsandbytes__nf4 has type I8, expected U8"},
      {"bnb4 state cut off", bnb4_plain,
       [](Module& m) { m.at("m.weight.quant_state.bitsandbytes__nf4").bytes.pop_back(); },
       "F: tensor m.weight.quant_state.bitsandbytes__nf4:1:69: expected ',' or '}'"},
      {"bnb4 state of FP4", bnb4_plain, state("quant_type", "fp4"),
       "F: tensor m.weight.quant_state.bitsandbytes__nf4: quant_type: expected nf4, found \"fp4\""},
      {"bnb4 other shape", bnb4_plain, state("shape", {64, 16}),
       "F: tensor m.weight.quant_state.bitsandbytes__nf4: shape: expected [16, 64], found [64, 16]"},
      {"bnb4 blocks of 0", bnb4_plain, state("blocksize", 0),
       "F: tensor m.weight.quant_state.bitsandbytes__nf4: blocksize: expected an integer from 2 to 1048576, found 0"},
      {"bnb4 other blocks", bnb4_plain, state("blocksize", 64),
       "F: tensor m.weight.absmax has shape [32], expected [16]"},
      {"bnb4 absmax negative", bnb4_plain, valued("m.weight.absmax", 9, -0.25f),
       "F: tensor m.weight.absmax has the scale -0.25 for output 4; the file is damaged"},
      {"bnb4 absmax type", bnb4_plain, typed("m.weight.absmax", TensorType::U8),
       "F: tensor m.weight.absmax has type U8, expected F32"},
      {"bnb4 map NaN", bnb4_plain, valued("m.weight.quant_map", 3, kNan),
       "F: tensor m.weight.quant_map has the value nan at index 3; the file is damaged"},
      {"bnb4 codes missing", bnb4_plain, shaped("m.weight", {511, 1}),
       "F: tensor m.weight has 511 bytes, expected 512 for 1024 weights of 4 bits"},
      {"bnb4 no nested absmax", bnb4_nested, without("m.weight.nested_absmax"),
       "F: tensor m.weight.nested_absmax is missing; the quantized module m needs it"},
      {"bnb4 no nested map", bnb4_nested, without("m.weight.nested_quant_map"),
       "F: tensor m.weight.nested_quant_map is missing; the quantized module m needs it"},
      {"bnb4 nested blocks of 0", bnb4_nested, state("nested_blocksize", 0),
       "F: tensor m.weight.quant_state.bitsandbytes__nf4: nested_blocksize: expected an integer from 1 to 1048576, "
       "found 0"},
      {"bnb4 no offset", bnb4_nested,
       [](Module& m) {
         auto s = state_of(m);
         s.erase("nested_offset");
         set_state(m, s);
       },
       "F: tensor m.weight.quant_state.bitsandbytes__nf4: nested_offset is missing"},
      {"bnb4 nested absmax infinite", bnb4_nested, valued("m.weight.nested_absmax", 1, kInfinity),
       "F: tensor m.weight.absmax has the scale inf for output 8; the file is damaged"},
      {"bnb8 no SCB", bnb8, without("m.SCB"), "F: tensor m.SCB is missing; the quantized module m needs it"},
      {"bnb8 SCB negative", bnb8, valued("m.SCB", 15, -3.0f),
       "F: tensor m.SCB has the scale -3 for output 15; the file is damaged"},
      {"bnb8 column tiles", bnb8, valued("m.weight_format", 0, uint8_t{2}),
       "F: tensor m.weight_format is 2, expected 0 for rows in order"},
      {"bnb8 threshold", bnb8, config("llm_int8_threshold", -1),
       "config.json: quantization_config.llm_int8_threshold: expected a number from 0 to 65504, found -1"},
      {"bnb8 weight shape", bnb8, shaped("m.weight", {64, 16}),
       "F: tensor m.weight has shape [64, 16], expected [16, 64]"},
      {"modelopt unknown algorithm", modelopt_nvfp4, config("quant_algo", "NVFP4_SVD"),
       "config.json: quantization_config.quant_algo: \"NVFP4_SVD\" is not supported for modelopt; use FP8, "
       "FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, MXFP8, NVFP4, NVFP4_AWQ, W4A16_NVFP4, W4A8_NVFP4_FP8, MXFP4, "
       "W4A8_MXFP4_FP8, W4A16_AWQ, W4A8_AWQ, W8A16 or W8A8_SQ_PER_CHANNEL"},
      {"modelopt no algorithm", modelopt_nvfp4, [](Module& m) { m.config.erase("quant_algo"); },
       "config.json: quantization_config.quant_algo is missing"},
      {"modelopt zero points", modelopt_awq4, config("has_zero_point", true),
       "config.json: quantization_config.has_zero_point: true is not supported for modelopt; use false"},
      {"modelopt layers missing", modelopt_nvfp4, config("quant_algo", "MIXED_PRECISION"),
       "config.json: quantization_config.quantized_layers is missing"},
      {"modelopt group", modelopt_nvfp4, config("group_size", 24),
       "config.json: quantization_config.group_size: 24 is not supported for modelopt; use 16, a multiple of 32, or -1 "
       "for whole rows"},
      {"modelopt scales", modelopt_nvfp4, without("m.weight_scale"),
       "F: tensor m.weight_scale is missing; the quantized module m needs it"},
      {"modelopt number of scales", modelopt_nvfp4, shaped("m.weight_scale", {16, 5}),
       "F: tensor m.weight_scale has shape [16, 5]: 64 inputs need groups of 16, or of a multiple of 32"},
      {"modelopt other scale", modelopt_nvfp4, valued("m.weight_scale_2", 0, 0.0f),
       "F: tensor m.weight_scale_2 is 0, expected a positive number"},
      {"modelopt int4 codes", modelopt_awq4, shaped("m.weight", {16, 64}),
       "F: tensor m.weight has shape [16, 64], expected [8, 64]"},
      {"modelopt int4 scale NaN", modelopt_awq4, valued("m.weight_scale", 7, kNan),
       "F: tensor m.weight_scale has the scale nan for output 3; the file is damaged"},
      {"modelopt blocks", modelopt_blocks, shaped("m.weight_scale", {2}),
       "F: tensor m.weight_scale has shape [2], expected [1, 1], [1, 1, 1, 1] or []"},
      {"mxfp8 scale NaN", modelopt_mxfp8, valued("m.weight_scale", 9, uint8_t{255}),
       "F: tensor m.weight_scale has the scale nan for output 4; the file is damaged"},
      {"mxfp8 type of scales", modelopt_mxfp8, typed("m.weight_scale", TensorType::F32),
       "F: tensor m.weight_scale has type F32, expected U8 or F8_E8M0"},
      {"auto-round packing", auto_round, config("packing_format", "auto_round:marlin"),
       "config.json: quantization_config.packing_format: \"auto_round:marlin\" is not supported for auto-round; use "
       "auto_round, auto_round:auto_gptq, auto_round:gptqmodel, auto_round:auto_awq, auto_round:fp8_static or "
       "auto_round:llm_compressor"},
      {"auto-round bits", auto_round, config("bits", 5),
       "config.json: quantization_config.bits: 5 is not supported for auto-round; use 2, 3, 4 or 8"},
      {"auto-round group", auto_round, config("group_size", 48),
       "config.json: quantization_config.group_size: 48 is not supported for auto-round; use 16, a multiple of 32, or "
       "-1 "
       "for whole rows"},
      {"auto-round rotation", auto_round, config("rotation_config", {{"block_size", 32}}),
       "config.json: quantization_config.rotation_config: an object is not supported for auto-round; quantize without "
       "rotations"},
      {"auto-round type", auto_round, config("data_type", "mx_int"),
       "config.json: quantization_config.data_type: \"mx_int\" is not supported for auto-round; use int"},
      {"auto-round own bits", auto_round, config("extra_config", {{"m", {{"bits", 7}}}}),
       "config.json: quantization_config.extra_config.m.bits: 7 is not supported for auto-round; use 2, 3, 4 or 8"},
      {"auto-round own bits of other codes", auto_round, config("extra_config", {{"m", {{"bits", 8}}}}),
       "F: tensor m.qweight has shape [8, 16], expected [16, 16]"},
      {"auto-round awq bits", auto_round,
       [](Module& m) { m.config["packing_format"] = "auto_round:auto_awq", m.config["bits"] = 3; },
       "config.json: quantization_config.bits: 3 is not supported for auto-round awq; use 4"},
      {"mlx bits", mlx4, config("bits", 7),
       "config.json: quantization.bits: 7 is not supported for mlx affine; use 2, 3, 4, 5, 6 or 8"},
      {"mlx group", mlx4, config("group_size", 16),
       "config.json: quantization.group_size: 16 is not supported for mlx affine; use 32, 64 or 128"},
      {"mlx mode", mlx4, config("mode", "int4"),
       "config.json: quantization.mode: \"int4\" is not supported for mlx; use affine, mxfp4, nvfp4 or mxfp8"},
      {"mlx nvfp4 group", mlx_nvfp4, config("group_size", 32),
       "config.json: quantization.group_size: 32 is not supported for mlx nvfp4; use 16"},
      {"mlx group of a row", mlx4, [](Module& m) { m.cols = 48; },
       "F: tensor m.weight has rows of 48 inputs, which groups of 32 do not divide"},
      {"mlx biases", mlx4, without("m.biases"), "F: tensor m.biases is missing; the quantized module m needs it"},
      {"mlx codes", mlx4, shaped("m.weight", {16, 7}), "F: tensor m.weight has shape [16, 7], expected [16, 8]"},
      {"mlx own bits", mlx4, config("m", {{"bits", 8}, {"group_size", 32}}),
       "F: tensor m.weight has shape [16, 8], expected [16, 16]"},
      {"mlx bias infinite", mlx4, valued("m.biases", 3, kInfinity),
       "F: tensor m.biases has the bias inf for output 1; the file is damaged"},
      {"mlx scale NaN", mlx_nvfp4, valued("m.scales", 5, uint8_t{0x7f}),
       "F: tensor m.scales has the scale code 127 for output 1; the file is damaged"},
      {"mlx code NaN", mlx_mxfp8, valued("m.weight", 64, uint8_t{0x7f}),
       "F: tensor m.weight has the value nan for output 1; the file is damaged"},
      {"torchao type", torchao_int8, config("quant_type", {{"default", {{"_type", "MXFPInferenceConfig"}}}}),
       "config.json: quantization_config.quant_type.default._type: \"MXFPInferenceConfig\" is not supported for "
       "torchao; use Int4WeightOnlyConfig, Int8WeightOnlyConfig, Int8DynamicActivationInt8WeightConfig, "
       "IntxWeightOnlyConfig, Int8DynamicActivationIntxWeightConfig, Float8WeightOnlyConfig, "
       "Float8DynamicActivationFloat8WeightConfig, Float8DynamicActivationInt4WeightConfig, AOPerModuleConfig, "
       "ModuleFqnToConfig or FqnToConfig"},
      {"torchao old", torchao_int8, config("quant_type", "int4_weight_only"),
       "config.json: quantization_config.quant_type: \"int4_weight_only\" is not supported for torchao; save the model "
       "again with torchao 0.15 or later"},
      {"torchao scales", torchao_int8, without("m._weight_scale"),
       "F: tensor m._weight_scale is missing; the quantized module m needs it"},
      {"torchao number of scales", torchao_int8, shaped("m._weight_scale", {16, 3}),
       "F: tensor m._weight_scale has shape [16, 3]: 64 inputs need groups of 16, or of a multiple of 32"},
      {"torchao zero points", torchao_int8, shaped("m._weight_zero_point", {16, 1}),
       "F: tensor m._weight_zero_point has shape [16, 1], expected [16, 2]"},
      {"torchao dimensions", torchao_int8, shaped("m._weight_qdata", {16, 8, 8}),
       "F: tensor m._weight_qdata has shape [16, 8, 8], expected 2 or 4 dimensions"},
      {"torchao zero point NaN", torchao_int4, valued("m._weight_zero_point", 17, kNan),
       "F: tensor m._weight_zero_point has the zero point nan for output 1; the file is damaged"},
      {"torchao int4 zero points", torchao_int4, without("m._weight_zero_point"),
       "F: tensor m._weight_zero_point is missing; the quantized module m needs it"},
      {"torchao tiles", torchao_tiles, shaped("m._weight_qdata", {2, 8, 32, 3}),
       "F: tensor m._weight_qdata has shape [2, 8, 32, 3], which does not hold 64 inputs in tiles of 16"},
      {"torchao outputs of tiles", torchao_tiles, shaped("m._weight_qdata", {1, 8, 32, 4}),
       "F: tensor m._weight_qdata has shape [1, 8, 32, 4], which does not hold 16 outputs in tiles of 8"},
      {"torchao scales of tiles", torchao_tiles, shaped("m._weight_scale_and_zero", {3, 16, 2}),
       "F: tensor m._weight_scale_and_zero has shape [3, 16, 2]: 1024 inputs need groups of a multiple of 32"},
      {"hqq bits", hqq4, config("quant_config", {{"weight_quant_params", {{"nbits", 5}}}}),
       "config.json: quantization_config.quant_config.weight_quant_params.nbits: 5 is not supported for hqq; use 1, 2, "
       "3, 4 or 8"},
      {"hqq bits of a module", hqq4, valued("m.nbits", 0, int32_t{6}),
       "F: tensor m.nbits is 6, expected 1, 2, 3, 4 or 8"},
      {"hqq axis", hqq4, valued("m.axis", 0, int32_t{2}), "F: tensor m.axis is 2, expected 0 to 1"},
      {"hqq group", hqq4, valued("m.group_size", 0, int32_t{48}),
       "F: tensor m.group_size is 48, which does not divide the 1024 weights"},
      {"hqq shape", hqq4, valued("m.shape", 0, int64_t{8}), "F: tensor m.shape is [8, 64], expected [16, 64]"},
      {"hqq no zero points", hqq4, without("m.zero"), "F: tensor m.zero is missing; the quantized module m needs it"},
      {"hqq codes", hqq4, shaped("m.W_q", {8, 32}), "F: tensor m.W_q has shape [8, 32], expected [16, 32]"},
      {"hqq quantized scales", hqq4, valued("m.quant_scale", 0, uint8_t{1}),
       "F: tensor m.quant_scale is 1: Quire cannot read scales that are quantized themselves"},
      {"hqq zero point infinite", hqq4, valued("m.zero", 2, kInfinity),
       "F: tensor m.zero has the zero point inf for output 1; the file is damaged"},
      {"quark type", quark4, [](Module& m) { quark_weight(m)["dtype"] = "bfp16"; },
       "config.json: quantization_config.global_quant_config.weight.dtype: \"bfp16\" is not supported for quark; use "
       "int4, uint4, int8, fp8_e4m3 or fp4"},
      {"quark scheme", quark4, [](Module& m) { quark_weight(m)["qscheme"] = "per_channel"; },
       "config.json: quantization_config.global_quant_config.weight.qscheme: \"per_channel\" is not supported for "
       "quark "
       "int4; use per_group"},
      {"quark group", quark4, [](Module& m) { quark_weight(m)["group_size"] = 40; },
       "config.json: quantization_config.global_quant_config.weight.group_size: 40 is not supported for quark int4; "
       "use "
       "16, a multiple of 32, or -1 for whole rows"},
      {"quark rotation", quark4, config("algo_config", {{{"name", "rotation"}, {"r3", true}}}),
       "config.json: quantization_config.algo_config[0].name: \"rotation\" is not supported for quark; r3 and r4 must "
       "be "
       "false, without online rotations"},
      {"quark packing", quark4, [](Module& m) { m.config["export"]["pack_method"] = "rows"; },
       "config.json: quantization_config.export.pack_method: \"rows\" is not supported for quark; use reorder or "
       "order"},
      {"quark zero points", quark4, without("m.weight_zero_point"),
       "F: tensor m.weight_zero_point is missing; the quantized module m needs it"},
      {"quark codes", quark4, shaped("m.weight", {16, 64}), "F: tensor m.weight has shape [16, 64], expected [64, 2]"},
  };
  return all;
}

TEST(BadQuantizedModules, StartFromGoodOnes) {
  for (const Case& c : cases()) EXPECT_EQ(problem_with(c.make()), "") << c.name;
}

TEST(BadQuantizedModules, AreRefusedWithThePlaceAndTheReason) {
  for (const Case& c : cases()) {
    Module m = c.make();
    c.damage(m);
    EXPECT_EQ(problem_with(m), c.message) << c.name;
  }
}

TEST(BadQuantizedModules, AreOfManyKinds) { EXPECT_GE(cases().size(), 120u); }

}  // namespace
}  // namespace quire::testing
