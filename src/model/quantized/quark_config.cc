// The settings of AMD's Quark: one for all layers, others for layers of a name. Its layouts of tensors are like those of
// other methods.
#include <algorithm>

#include "model/quantized/config_values.h"

namespace quire {
namespace {

constexpr std::string_view kQuarkMethod = "quark";
constexpr size_t kMostLayerPatterns = 1 << 16;

using Scales = CodedScheme::Scales;

CodedScheme float_scheme(const JsonField& weight, const std::string& scheme_name) {
  CodedScheme scheme;
  scheme.form = CodedForm::kFp8;
  scheme.bits = 8;
  scheme.scales = scheme_name == "per_tensor" ? Scales::kTensor : Scales::kChannel;
  if (scheme_name == "per_group")
    throw not_supported(weight.at("qscheme"), "quark fp8_e4m3", "use per_tensor or per_channel");
  return scheme;
}

CodedScheme fp4_scheme(const JsonField& weight) {
  CodedScheme scheme;
  scheme.form = CodedForm::kMxfp4;
  scheme.bits = 4;
  scheme.group = read_choice(weight, "group_size", "quark fp4", {32});
  read_word(weight, "scale_format", "quark fp4", {"e8m0"});
  return scheme;
}

CodedScheme integer_scheme(const JsonField& weight, const std::string& type, const std::string& scheme_name) {
  CodedScheme scheme;
  scheme.symmetric = weight.get_or<bool>("symmetric", true);
  if (type == "int8") {
    scheme.form = CodedForm::kInt8;
    scheme.bits = 8;
    scheme.scales = scheme_name == "per_tensor" ? Scales::kTensor : Scales::kChannel;
    scheme.symmetric = false;  // symmetric ones have zero points of 0
    if (scheme_name == "per_group")
      throw not_supported(weight.at("qscheme"), "quark int8", "use per_tensor or per_channel");
    return scheme;
  }
  if (scheme_name != "per_group") throw not_supported(weight.at("qscheme"), "quark " + type, "use per_group");
  scheme.form = CodedForm::kQuarkInt4;
  scheme.bits = 4;
  scheme.group = read_group_size(weight, "group_size", "quark " + type);
  scheme.signed_codes = type == "int4";
  return scheme;
}

CodedScheme read_quark_scheme(const JsonField& layer, bool reordered) {
  const JsonField weight = layer.at("weight").object();
  for (const char* key : {"dtype", "qscheme"}) weight.at(key);
  const std::string type = read_word(weight, "dtype", kQuarkMethod, {"int4", "uint4", "int8", "fp8_e4m3", "fp4"});
  const std::string name = read_word(weight, "qscheme", kQuarkMethod, {"per_tensor", "per_channel", "per_group"});
  if (weight.get_or<bool>("is_dynamic", false)) throw not_supported(weight.at("is_dynamic"), kQuarkMethod, "use false");
  CodedScheme scheme = type == "fp8_e4m3" ? float_scheme(weight, name)
                       : type == "fp4"    ? fp4_scheme(weight)
                                          : integer_scheme(weight, type, name);
  scheme.reordered = reordered;
  return scheme;
}

// Python's fnmatch: * is any text, ? any character.
Regex wildcard(std::string_view pattern, const std::string& where) {
  std::string regex;
  for (const char c : pattern) {
    if (c == '*') {
      regex += ".*";
    } else if (c == '?') {
      regex += '.';
    } else {
      const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
      if (!is_plain) regex += '\\';
      regex += c;
    }
  }
  return Regex(regex + "$", where);
}

// Rotations R1 and R2 are part of the weights; R3, R4 and online ones change the inputs.
void check_algorithms(const JsonField& config) {
  constexpr size_t kMostAlgorithms = 64;
  const auto algorithms = config.find("algo_config");
  if (!algorithms) return;
  for (const JsonField& algorithm : algorithms->elements(kMostAlgorithms)) {
    const std::string name = algorithm.object().get_or<std::string>("name", "");
    if (name != "rotation" && name != "quarot") continue;
    const bool is_fused = !algorithm.get_or<bool>("r3", true) && !algorithm.get_or<bool>("r4", true) &&
                          !algorithm.has("online_config") && !algorithm.get_or<bool>("online_r1_rotation", false);
    if (!is_fused)
      throw not_supported(algorithm.at("name"), kQuarkMethod, "r3 and r4 must be false, without online rotations");
  }
}

}  // namespace

void read_quark(const JsonField& config, Quantization& to) {
  to.ignores_scales = true;
  check_names(config, "exclude");
  check_algorithms(config);
  bool reordered = true;
  if (const auto exported = config.find("export")) {
    reordered = read_word(exported->object(), "pack_method", kQuarkMethod, {"reorder", "order"}) == "reorder";
    read_word(*exported, "weight_format", kQuarkMethod, {"real_quantized"});
  }
  if (const auto layers = config.find("layer_quant_config")) {
    const auto members = layers->object().members();
    if (members.size() > kMostLayerPatterns) throw layers->error("has too many members");
    for (const auto& [pattern, layer] : members) {
      if (!layer.object().has("weight")) continue;
      Quantization::Part part{{}, read_quark_scheme(layer, reordered)};
      part.modules.names.emplace(pattern);
      if (pattern.find_first_of("*?") != pattern.npos)
        part.modules.patterns.push_back(wildcard(pattern, layer.where()));
      to.parts.push_back(std::move(part));
    }
  }
  if (const auto all = config.find("global_quant_config"); all && all->object().has("weight"))
    use_for_all(read_quark_scheme(*all, reordered), to);
}

}  // namespace quire
