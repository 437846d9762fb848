#include "model/quantized/quantization.h"

#include <algorithm>

#include "base/text/quote.h"
#include "model/quantized/config_values.h"

namespace quire {
namespace {

// Settings of their own for some modules: "PATTERN" or "+:PATTERN"; "-:PATTERN" has those that are left alone.
void read_gptq_patterns(const JsonField& dynamic, const CodedScheme& usual, Quantization& to) {
  constexpr size_t kMostPatterns = 1 << 16;
  const auto members = dynamic.object().members();
  if (members.size() > kMostPatterns) throw dynamic.error("has too many members");
  for (auto [pattern, own] : members) {
    if (pattern.starts_with("-:")) continue;
    if (pattern.starts_with("+:")) pattern.remove_prefix(2);
    Quantization::Part part{{}, usual};
    if (own.object().has("bits")) part.scheme.bits = read_choice(own, "bits", "gptq", {2, 3, 4, 8});
    if (own.has("group_size")) part.scheme.group = read_group_size(own, "group_size", "gptq");
    part.scheme.symmetric = own.get_or<bool>("sym", usual.symmetric);
    part.scheme.act_order = own.get_or<bool>("desc_act", usual.act_order);
    part.modules.patterns.emplace_back(pattern, own.where());
    to.parts.push_back(std::move(part));
  }
}

void read_gptq(const JsonField& config, Quantization& to) {
  CodedScheme scheme;
  scheme.form = CodedForm::kGptq;
  scheme.bits = read_choice(config, "bits", "gptq", {2, 3, 4, 8});
  scheme.group = read_group_size(config, "group_size", "gptq");
  scheme.symmetric = config.get_or<bool>("sym", true);
  scheme.act_order = config.get_or<bool>("desc_act", false);
  const char* const layout = config.has("checkpoint_format") ? "checkpoint_format" : "format";
  scheme.zeros_minus_one = read_word(config, layout, "gptq", {"gptq", "gptq_v2"}) == "gptq";
  read_word(config, "pack_dtype", "gptq", {"int32"});
  if (config.get_or<bool>("is_marlin_format", false))
    throw not_supported(config.at("is_marlin_format"), "gptq", "the layout must be gptq or gptq_v2");
  if (const auto dynamic = config.find("dynamic")) read_gptq_patterns(*dynamic, scheme, to);
  use_for_all(scheme, to);
}

void read_awq(const JsonField& config, Quantization& to) {
  CodedScheme scheme;
  scheme.form = CodedForm::kAwq;
  scheme.bits = read_choice(config, "bits", "awq", {4});
  scheme.group = read_group_size(config, "group_size", "awq");
  scheme.symmetric = !config.get_or<bool>("zero_point", true);
  if (scheme.symmetric) throw not_supported(config.at("zero_point"), "awq", "use true");
  read_word(config, "version", "awq", {"gemm"});
  check_names(config, "modules_to_not_convert");
  use_for_all(scheme, to);
}

void read_fp8(const JsonField& config, Quantization& to) {
  CodedScheme scheme;
  scheme.form = CodedForm::kFp8;
  scheme.bits = 8;
  read_word(config, "fmt", "fp8", {"e4m3", "float8_e4m3fn"});
  read_word(config, "activation_scheme", "fp8", {"dynamic", "static"});
  if (const auto block = config.find("weight_block_size")) {
    scheme.scales = CodedScheme::Scales::kBlock;
    scheme.scale_ending = ".weight_scale_inv";
    read_block(*block, "fp8", scheme);
  } else {
    scheme.scales = CodedScheme::Scales::kTensor;
  }
  check_names(config, "modules_to_not_convert");
  check_names(config, "ignored_layers");
  to.ignores_scales = true;
  use_for_all(scheme, to);
}

void read_bitsandbytes(const JsonField& config, Quantization& to) {
  const auto is_set = [&](std::string_view key, std::string_view hidden) {
    return config.get_or<bool>(key, config.get_or<bool>(hidden, false));
  };
  const bool four = is_set("load_in_4bit", "_load_in_4bit"), eight = is_set("load_in_8bit", "_load_in_8bit");
  if (four == eight)
    throw unsupported("{}: load_in_4bit and load_in_8bit are both {}; exactly one must be true", config.where(), four);
  CodedScheme scheme;
  scheme.form = four ? CodedForm::kBnb4 : CodedForm::kBnb8;
  scheme.bits = four ? 4 : 8;
  if (four) read_word(config, "bnb_4bit_quant_type", "bitsandbytes", {"fp4", "nf4"});
  if (eight) {
    constexpr double kUsual = 6, kMost = 65504;
    const auto threshold = config.find("llm_int8_threshold");
    const double at = threshold ? threshold->number(0, kMost) : kUsual;
    // 0: no input is an outlier.
    scheme.inputs.kind = at > 0 ? InputCodes::Kind::kOutliers : InputCodes::Kind::kPerToken;
    scheme.inputs.threshold = static_cast<float>(at);
  }
  check_names(config, "llm_int8_skip_modules");
  use_for_all(scheme, to);
}

void read_mxfp4(const JsonField& config, Quantization& to) {
  CodedScheme scheme;
  scheme.form = CodedForm::kMxfp4Blocks;
  scheme.bits = 4;
  scheme.group = 32;
  check_names(config, "modules_to_not_convert");
  use_for_all(scheme, to);
}

struct Method {
  QuantizationMethod about;
  void (*read)(const JsonField& config, Quantization& to);
};
constexpr Method kMethods[] = {
    {{"gptq",
      "2, 3, 4 and 8 bits; groups of 16, of a multiple of 32, or whole rows; with and without zero points; act-order "
      "(`desc_act`); `gptq` and `gptq_v2`; settings of their own for some modules (`dynamic`)",
      "Marlin's layout", "as for GGUF"},
     read_gptq},
    {{"awq", "4 bits with zero points, version `gemm`; groups as above", "`gemv`, Marlin's layout, no zero points",
      "as for GGUF"},
     read_awq},
    {{"compressed-tensors",
      "`pack-quantized` of 4 and 8 bits, `int-quantized`, `float-quantized`, `naive-quantized`, "
      "`nvfp4-pack-quantized`, `mxfp4-pack-quantized`; scales of the tensor, outputs, groups or blocks",
      "sparse weights; transforms other than Hadamard rotations of inputs (`transform_config`)",
      "int8 rows for `int-quantized` with symmetric int8 inputs (W8A8); else as for GGUF"},
     read_compressed_config},
    {{"fp8", "E4M3 with scales of the tensor, outputs or blocks (DeepSeek)", "other 8-bit floats", "as for GGUF"},
     read_fp8},
    {{"bitsandbytes", "NF4 and FP4, with and without double quantization; LLM.int8", "LLM.int8 in tiles",
      "int8 rows with outliers for LLM.int8; else as for GGUF"},
     read_bitsandbytes},
    {{"mxfp4", "experts as in gpt-oss (`_blocks`, `_scales`)", "–", "as for GGUF"}, read_mxfp4},
    {{"modelopt",
      "NVIDIA's ModelOpt: NVFP4, MXFP4, FP8, MXFP8, int4 (AWQ) and int8, mixed by layer; settings of `config.json` or "
      "`hf_quant_config.json`",
      "SVDQuant; experts that are stacked in one tensor",
      "int8 rows for W8A8 (`W8A8_SQ_PER_CHANNEL`); else as for GGUF"},
     read_modelopt},
    {{"auto-round",
      "Intel's auto-round: GPTQ's and AWQ's layouts of 2, 3, 4 and 8 bits, FP8, NVFP4, MXFP4 and MXFP8; settings of "
      "their own for some modules (`extra_config`)",
      "integers in MX blocks, NVFP4 with E5M3 scales", "as for GGUF"},
     read_auto_round},
    {{"mlx",
      "Apple's MLX (`quantization` in `config.json`): 2, 3, 4, 5, 6 and 8 bits in groups of 32, 64 and 128, `mxfp4`, "
      "`nvfp4`, `mxfp8`; settings of their own for some modules",
      "one scale for a whole NVFP4 tensor (`global_scale`)", "as for GGUF"},
     read_mlx},
    {{"torchao",
      "safetensors of torchao 0.15 and later: int4 (plain, tiles for tensor cores, 32-bit words), int8 and narrower "
      "integers in bytes, FP8",
      "MX and NVFP4 tensors, sparse ones, the pickled files of older versions",
      "int8 rows for `Int8DynamicActivationInt8WeightConfig`; else as for GGUF"},
     read_torchao},
    {{"hqq", "1, 2, 3, 4 and 8 bits, groups of any size along both axes", "scales or zero points that are quantized",
      "as for GGUF"},
     read_hqq},
    {{"quark", "AMD's Quark: int4 and uint4 in groups, int8, FP8, MXFP4; settings of their own for some layers",
      "other types; FP8 and int8 in groups", "as for GGUF"},
     read_quark},
};

// Older files lack quant_method.
std::string method_of(const JsonField& config) {
  if (config.has("quant_method")) {
    const auto name = config.get<std::string>("quant_method");
    if (name.starts_with("modelopt")) return "modelopt";  // some writers add the kind: modelopt_fp4
    return name == "intel/auto-round" ? "auto-round" : name;
  }
  if (config.has("config_groups")) return "compressed-tensors";
  if (config.has("load_in_4bit") || config.has("load_in_8bit")) return "bitsandbytes";
  return config.get<std::string>("quant_method");  // throws
}

std::optional<JsonField> find_config(const JsonField& config) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (const auto found = config.find(key)) return found;
  }
  return std::nullopt;
}

// MLX has a key of its own, and repeats its settings under the usual one, without a method. auto-round may write MLX's
// layout.
std::optional<JsonField> find_mlx_config(const JsonField& config) {
  const auto usual = config.find("quantization_config");
  const bool has_method = usual && usual->object().has("quant_method");
  const auto packing = usual ? usual->optional<std::string>("packing_format") : std::nullopt;
  if (has_method && packing != "mlx" && packing != "auto_round:mlx") return std::nullopt;
  return config.find("quantization");
}

Quantization read_settings(const JsonField& settings) {
  Quantization q;
  q.method = method_of(settings);
  const auto* method = std::ranges::find(kMethods, q.method, [](const Method& m) { return m.about.name; });
  if (method == std::end(kMethods)) {
    std::vector<std::string_view> names;
    for (const Method& m : kMethods) names.push_back(m.about.name);
    throw unsupported("{}: {} is not supported; Quire reads {}", settings.where("quant_method"), quote(q.method),
                      fmt::join(names, ", "));
  }
  method->read(settings, q);
  return q;
}

}  // namespace

bool ModuleSet::has_name(std::string_view module) const { return names.contains(module); }

bool ModuleSet::matches(std::string_view module) const {
  Regex::Matcher matcher;
  return std::ranges::any_of(patterns, [&](const Regex& pattern) {
    bool at_start = false;
    matcher.for_each_match(pattern, module, [&](size_t begin, size_t) { at_start |= begin == 0; });
    return at_start;
  });
}

bool RotationRule::applies_to(std::string_view module) const {
  const auto has = [&](const ModuleSet& set) { return set.all || set.has_name(module) || set.matches(module); };
  return has(targets) && !has(except);
}

const CodedScheme* Quantization::find_scheme(std::string_view module) const {
  const auto has_name = [&](const Part& p) { return p.modules.has_name(module); };
  if (const auto part = std::ranges::find_if(parts, has_name); part != parts.end()) return &part->scheme;
  const auto matches = [&](const Part& p) { return p.modules.matches(module); };
  if (const auto part = std::ranges::find_if(parts, matches); part != parts.end()) return &part->scheme;
  const auto part = std::ranges::find_if(parts, [](const Part& p) { return p.modules.all; });
  return part == parts.end() ? nullptr : &part->scheme;
}

bool Quantization::ignores(std::string_view tensor) const {
  constexpr std::string_view kEndings[] = {
      ".k_scale",        ".v_scale",        ".q_scale",        ".kv_scale",          ".output_scale",
      ".k_zero_point",   ".v_zero_point",   ".q_zero_point",   ".output_zero_point", ".prob_output_scale",
      ".q_global_scale", ".k_global_scale", ".v_global_scale", ".k_proj.k_bias",     ".v_proj.v_bias"};
  return ignores_scales && std::ranges::any_of(kEndings, [&](std::string_view e) { return tensor.ends_with(e); });
}

std::vector<QuantizationMethod> quantization_methods() {
  std::vector<QuantizationMethod> all;
  for (const Method& m : kMethods) all.push_back(m.about);
  return all;
}

std::optional<Quantization> read_quantization(const JsonField& config) {
  if (const auto mlx = find_mlx_config(config)) {
    Quantization q;
    q.method = "mlx";
    read_mlx(mlx->object(), q);
    return q;
  }
  auto found = find_config(config);
  if (const auto inner = config.find("text_config"); inner && !found) found = find_config(*inner);
  if (!found) return std::nullopt;
  return read_settings(found->object());
}

std::optional<Quantization> read_quantization(const HfConfig& hf) {
  if (auto found = read_quantization(hf.config)) return found;
  if (!hf.quantizer) return std::nullopt;
  Quantization q;
  q.method = "modelopt";
  read_modelopt(hf.quantizer->object(), q);
  return q;
}

}  // namespace quire
