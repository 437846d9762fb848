// Small quantized modules of every method, for tests that change something in them.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "model/quantized/coded_matrix.h"

namespace quire::testing {

inline constexpr int kRows = 16, kCols = 64;  // groups and blocks of inputs: 32

// A module "m" of [kRows, kCols] and its config.json.
struct QuantizedModule {
  struct Stored {
    TensorType type;
    std::vector<uint64_t> shape;
    std::vector<uint8_t> bytes;
  };
  nlohmann::json config;  // quantization_config
  std::map<std::string, Stored> tensors;
  int rows = kRows, cols = kCols, item = 0, items = 0;
  std::string module = "m";

  Stored& at(const std::string& name) { return tensors.at(name); }

  void add(const std::string& name, TensorType type, const std::vector<uint64_t>& shape, std::vector<uint8_t> bytes) {
    tensors[name] = Stored{type, shape, std::move(bytes)};
  }
  // Of any bytes.
  void add(const std::string& name, TensorType type, const std::vector<uint64_t>& shape) {
    std::vector<uint8_t> bytes(tensor_bytes(type, shape).value());
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 37 + 11) & 0x7d;
    add(name, type, shape, std::move(bytes));
  }
  template <class T>
  void add_numbers(const std::string& name, TensorType type, const std::vector<uint64_t>& shape,
                   const std::vector<T>& numbers) {
    std::vector<uint8_t> bytes(numbers.size() * sizeof(T));
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    add(name, type, shape, std::move(bytes));
  }
  // float32 numbers 0.5, 0.625, ...
  void add_scales(const std::string& name, const std::vector<uint64_t>& shape) {
    std::vector<float> numbers(tensor_bytes(TensorType::U8, shape).value());
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = 0.5f + 0.125f * static_cast<float>(i % 8);
    add_numbers(name, TensorType::F32, shape, numbers);
  }
  template <class T>
  void set(const std::string& name, size_t index, T value) {
    std::memcpy(at(name).bytes.data() + index * sizeof(T), &value, sizeof(T));
  }
  template <class T>
  T get(const std::string& name, size_t index) {
    T value;
    std::memcpy(&value, at(name).bytes.data() + index * sizeof(T), sizeof(T));
    return value;
  }
};

// What its parts are once opened. Keeps the tensors that the matrix reads.
class OpenedModule {
 public:
  explicit OpenedModule(const QuantizedModule& m) : stored_(m.tensors) {
    for (const auto& [name, t] : stored_)
      views_[name] = TensorView{name, t.type, t.shape, std::as_bytes(std::span(t.bytes))};
    // MLX names no method, and has its settings under a key of its own.
    const char* const key =
        m.config.contains("quant_method") || !m.config.contains("mode") ? "quantization_config" : "quantization";
    const nlohmann::json config = {{key, m.config}};
    const Quantization q = read_quantization(JsonField::parse(config.dump(), "config.json")).value();
    const FindTensor find = [this](const std::string& name) {
      const auto found = views_.find(name);
      if (found != views_.end()) used.insert(name);
      return found == views_.end() ? nullptr : &found->second;
    };
    matrix = open_coded_matrix(q, "F", find, {m.module, m.rows, m.cols, m.item, m.items});
  }
  OpenedModule(const OpenedModule&) = delete;
  OpenedModule& operator=(const OpenedModule&) = delete;

  std::optional<CodedMatrix> matrix;
  std::set<std::string> used;

 private:
  std::map<std::string, QuantizedModule::Stored> stored_;
  std::map<std::string, TensorView> views_;
};

inline std::vector<int32_t> usual_groups() {
  std::vector<int32_t> groups(kCols);
  for (int i = 0; i < kCols; ++i) groups[static_cast<size_t>(i)] = i / 32;
  return groups;
}

inline QuantizedModule gptq(int bits = 4) {
  QuantizedModule m;
  m.config = {{"quant_method", "gptq"}, {"bits", bits}, {"group_size", 32}, {"sym", false}, {"desc_act", true}};
  const auto b = static_cast<uint64_t>(bits);
  m.add("m.qweight", TensorType::I32, {kCols * b / 32, kRows});
  m.add("m.qzeros", TensorType::I32, {2, (kRows * b + 31) / 32});
  m.add_scales("m.scales", {2, kRows});
  m.add_numbers("m.g_idx", TensorType::I32, {kCols}, usual_groups());
  return m;
}
inline QuantizedModule awq() {
  QuantizedModule m;
  m.config = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}, {"zero_point", true}, {"version", "gemm"}};
  m.add("m.qweight", TensorType::I32, {kCols, kRows / 8});
  m.add("m.qzeros", TensorType::I32, {2, kRows / 8});
  m.add_scales("m.scales", {2, kRows});
  return m;
}

inline nlohmann::json compressed(const std::string& format, const nlohmann::json& weights,
                                 const nlohmann::json& inputs = nullptr) {
  nlohmann::json group = {{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", inputs}};
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"config_groups", {{"group_0", group}}},
          {"ignore", {"lm_head"}}};
}
inline nlohmann::json& group_of(QuantizedModule& m) { return m.config["config_groups"]["group_0"]; }

inline QuantizedModule packed_int(int bits = 4) {
  QuantizedModule m;
  m.config = compressed("pack-quantized", {{"num_bits", bits},
                                           {"type", "int"},
                                           {"symmetric", false},
                                           {"strategy", "group"},
                                           {"group_size", 32},
                                           {"actorder", "group"}});
  const auto b = static_cast<uint64_t>(bits);
  m.add("m.weight_packed", TensorType::I32, {kRows, kCols * b / 32});
  m.add("m.weight_zero_point", TensorType::I32, {kRows * b / 32, 2});
  m.add_scales("m.weight_scale", {kRows, 2});
  m.add_numbers("m.weight_g_idx", TensorType::I32, {kCols}, usual_groups());
  m.add_numbers("m.weight_shape", TensorType::I64, {2}, std::vector<int64_t>{kRows, kCols});
  return m;
}
inline QuantizedModule int8_static() {
  QuantizedModule m;
  m.config =
      compressed("int-quantized", {{"num_bits", 8}, {"type", "int"}, {"symmetric", false}, {"strategy", "channel"}},
                 {{"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"strategy", "tensor"}, {"dynamic", false}});
  m.add("m.weight", TensorType::I8, {kRows, kCols});
  m.add_scales("m.weight_scale", {kRows, 1});
  m.add("m.weight_zero_point", TensorType::I8, {kRows, 1});
  m.add_scales("m.input_scale", {1});
  return m;
}
inline QuantizedModule float8(const std::string& strategy = "channel") {
  QuantizedModule m;
  m.config = compressed("float-quantized", {{"num_bits", 8}, {"type", "float"}, {"strategy", strategy}});
  if (strategy == "block") group_of(m)["weights"]["block_structure"] = {8, 32};
  m.add("m.weight", TensorType::F8_E4M3, {kRows, kCols});
  m.add_scales("m.weight_scale", strategy == "block" ? std::vector<uint64_t>{2, 2} : std::vector<uint64_t>{kRows, 1});
  return m;
}
inline QuantizedModule fp8_blocks() {
  QuantizedModule m;
  m.config = {{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}, {"weight_block_size", {8, 32}}};
  m.add("m.weight", TensorType::F8_E4M3, {kRows, kCols});
  m.add_scales("m.weight_scale_inv", {2, 2});
  return m;
}
inline QuantizedModule fp8_static() {
  QuantizedModule m;
  m.config = {{"quant_method", "fp8"}, {"activation_scheme", "static"}};
  m.add("m.weight", TensorType::F8_E4M3, {kRows, kCols});
  m.add_scales("m.weight_scale", {1});
  m.add_scales("m.input_scale", {1});
  return m;
}
inline QuantizedModule nvfp4() {
  QuantizedModule m;
  m.config = compressed("nvfp4-pack-quantized",
                        {{"num_bits", 4}, {"type", "float"}, {"strategy", "tensor_group"}, {"group_size", 16}});
  m.add("m.weight_packed", TensorType::U8, {kRows, kCols / 2});
  m.add("m.weight_scale", TensorType::F8_E4M3, {kRows, kCols / 16});
  m.add_numbers("m.weight_global_scale", TensorType::F32, {1}, std::vector<float>{2});
  return m;
}
inline QuantizedModule mxfp4() {
  QuantizedModule m;
  m.config = compressed("mxfp4-pack-quantized",
                        {{"num_bits", 4}, {"type", "float"}, {"strategy", "group"}, {"group_size", 32}});
  m.add("m.weight_packed", TensorType::U8, {kRows, kCols / 2});
  m.add("m.weight_scale", TensorType::U8, {kRows, kCols / 32});
  return m;
}
inline QuantizedModule gpt_oss() {
  QuantizedModule m;
  m.config = {{"quant_method", "mxfp4"}, {"modules_to_not_convert", {"lm_head"}}};
  m.add("m_blocks", TensorType::U8, {3, kRows, kCols / 32, 16});
  m.add("m_scales", TensorType::U8, {3, kRows, kCols / 32});
  m.item = 1;
  m.items = 3;
  return m;
}

inline void set_state(QuantizedModule& m, const nlohmann::json& state) {
  const std::string text = state.dump();
  m.add("m.weight.quant_state.bitsandbytes__nf4", TensorType::U8, {text.size()}, {text.begin(), text.end()});
}
inline nlohmann::json state_of(const QuantizedModule& m) {
  const auto& bytes = m.tensors.at("m.weight.quant_state.bitsandbytes__nf4").bytes;
  return nlohmann::json::parse(bytes.begin(), bytes.end());
}
inline QuantizedModule bnb4(bool nested = true) {
  QuantizedModule m;
  m.config = {{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}, {"bnb_4bit_quant_type", "nf4"}};
  m.add("m.weight", TensorType::U8, {kRows * kCols / 2, 1});
  m.add_scales("m.weight.quant_map", {16});
  nlohmann::json state = {{"quant_type", "nf4"}, {"blocksize", 32}, {"dtype", "float16"}, {"shape", {kRows, kCols}}};
  if (nested) {
    m.add("m.weight.absmax", TensorType::U8, {32});
    m.add_scales("m.weight.nested_absmax", {2});
    m.add_scales("m.weight.nested_quant_map", {256});
    state["nested_blocksize"] = 16;
    state["nested_offset"] = 0.25;
  } else {
    m.add_scales("m.weight.absmax", {32});
  }
  set_state(m, state);
  return m;
}
inline QuantizedModule bnb8() {
  QuantizedModule m;
  m.config = {{"quant_method", "bitsandbytes"}, {"load_in_8bit", true}, {"llm_int8_threshold", 5}};
  m.add("m.weight", TensorType::I8, {kRows, kCols});
  m.add_scales("m.SCB", {kRows});
  m.add("m.weight_format", TensorType::U8, {}, {0});
  return m;
}

}  // namespace quire::testing
