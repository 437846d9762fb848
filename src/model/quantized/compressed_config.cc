// The settings of compressed-tensors: groups of modules, each with a scheme for its weights and inputs.
#include <algorithm>

#include "model/quantized/config_values.h"

namespace quire {
namespace {

constexpr std::string_view kMethod = "compressed-tensors";
constexpr size_t kMostGroups = 1024, kMostTargets = 1 << 16;
constexpr int kMostRotated = 1 << 20;

CodedForm form_of(const JsonField& where, const std::string& format, const std::string& type) {
  if (format == "pack-quantized") return CodedForm::kPackedInt;
  if (format == "int-quantized") return CodedForm::kInt8;
  if (format == "float-quantized") return CodedForm::kFp8;
  if (format == "nvfp4-pack-quantized") return CodedForm::kNvfp4;
  if (format == "mxfp4-pack-quantized") return CodedForm::kMxfp4;
  if (format == "naive-quantized") return type == "int" ? CodedForm::kInt8 : CodedForm::kFp8;
  throw not_supported(where, kMethod,
                      "use pack-quantized, int-quantized, float-quantized, naive-quantized, nvfp4-pack-quantized or "
                      "mxfp4-pack-quantized");
}

void read_scales(const JsonField& weights, CodedScheme& scheme) {
  using Scales = CodedScheme::Scales;
  const int group = read_group_size(weights, "group_size", kMethod);
  const std::string usual = group > 0 ? "group" : "tensor";  // as the library completes missing ones
  const std::string strategy =
      weights.has("strategy")
          ? read_word(weights, "strategy", kMethod, {"tensor", "channel", "group", "block", "tensor_group"})
          : usual;
  if (strategy == "tensor") scheme.scales = Scales::kTensor;
  if (strategy == "channel") scheme.scales = Scales::kChannel;
  if (strategy == "group" || strategy == "tensor_group") {
    scheme.scales = Scales::kGroup;
    scheme.group = group;
    if (group == 0) scheme.scales = Scales::kChannel;
  }
  if (strategy == "block") {
    scheme.scales = Scales::kBlock;
    read_block(weights.at("block_structure"), kMethod, scheme);
  }
}

InputCodes read_inputs(const JsonField& group) {
  const auto inputs = group.find("input_activations");
  if (!inputs) return {};
  const bool is_int8 = inputs->get_or<std::string>("type", "int") == "int" && inputs->get_or<int>("num_bits", 8) == 8;
  if (!is_int8 || !inputs->get_or<bool>("symmetric", true)) return {};
  const auto strategy = inputs->get_or<std::string>("strategy", "tensor");
  const auto dynamic = inputs->find("dynamic");
  const bool is_dynamic = dynamic && dynamic->json().is_boolean() && dynamic->boolean();
  if (strategy == "tensor") return {.kind = is_dynamic ? InputCodes::Kind::kPerToken : InputCodes::Kind::kStatic};
  if (strategy == "token" && is_dynamic) return {.kind = InputCodes::Kind::kPerToken};
  return {};
}

CodedScheme read_scheme(const JsonField& group, const JsonField& format) {
  const JsonField weights = group.at("weights").object();
  const std::string type = read_word(weights, "type", kMethod, {"int", "float"});
  CodedScheme scheme;
  scheme.form = form_of(format, format.string(), type);
  const std::string method = fmt::format("{} {}", kMethod, format.string());
  const bool is_packed = scheme.form == CodedForm::kPackedInt, is_int = is_packed || scheme.form == CodedForm::kInt8,
             is_nvfp4 = scheme.form == CodedForm::kNvfp4, is_fp4 = is_nvfp4 || scheme.form == CodedForm::kMxfp4;
  if (is_int != (type == "int")) throw not_supported(weights.at("type"), method, is_int ? "use int" : "use float");
  scheme.bits = is_packed ? read_choice(weights, "num_bits", method, {4, 8})
                          : read_choice(weights, "num_bits", method, {is_fp4 ? 4 : 8});
  scheme.symmetric = weights.get_or<bool>("symmetric", true);
  if (!is_int && !scheme.symmetric) throw not_supported(weights.at("symmetric"), method, "use true");
  if (is_fp4) {
    scheme.group = read_choice(weights, "group_size", method, {is_nvfp4 ? 16 : 32});
  } else {
    read_scales(weights, scheme);
  }
  if (const auto order = weights.find("actorder"); order && order->json().is_string())
    scheme.act_order = order->string() == "group" || order->string() == "dynamic";
  // The inputs of other weights are as exact as they can be.
  if (scheme.form == CodedForm::kInt8) scheme.inputs = read_inputs(group);
  return scheme;
}

void read_target(const JsonField& target, ModuleSet& to) {
  const std::string& name = target.string();
  if (name == "Linear") {
    to.all = true;
  } else if (name.starts_with("re:")) {
    to.patterns.emplace_back(std::string_view(name).substr(3), target.where());
  } else {
    to.names.insert(name);
  }
}

void read_targets(const JsonField& list, ModuleSet& to) {
  for (const JsonField& target : list.elements(kMostTargets)) read_target(target, to);
}

// A list of names, or one name.
ModuleSet read_modules(const JsonField& field) {
  ModuleSet modules;
  if (field.json().is_string()) {
    read_target(field, modules);
  } else {
    read_targets(field, modules);
  }
  return modules;
}

// Files store their weights rotated, so only the rotations of inputs are read.
void read_rotations(const std::string& name, const JsonField& scheme, Quantization& to) {
  const std::string type = read_word(scheme, "type", kMethod, {"hadamard", "random-hadamard", "random-matrix"});
  for (const JsonField& use : scheme.at("apply").elements(kMostTargets)) {
    const std::string location = use.object().get<std::string>("location");
    if (location == "weight_input" || location == "weight_output") continue;
    if (location != "input")
      throw not_supported(use.at("location"), kMethod, "use input, weight_input or weight_output");
    if (type == "random-matrix") throw not_supported(scheme.at("type"), kMethod, "use hadamard or random-hadamard");
    RotationRule rule;
    rule.name = name;
    rule.where = use.where();
    rule.targets = read_modules(use.at("targets"));
    if (use.has("ignore")) rule.except = read_modules(use.at("ignore"));
    if (scheme.has("head_dim")) rule.size = static_cast<int>(scheme.at("head_dim").integer(1, kMostRotated));
    rule.inverse = use.get_or<bool>("inverse", false);
    if (scheme.get_or<bool>("randomize", false)) throw not_supported(scheme.at("randomize"), kMethod, "use false");
    rule.is_known = type == "hadamard";
    to.rotations.push_back(std::move(rule));
  }
}

}  // namespace

void read_compressed_config(const JsonField& config, Quantization& to) {
  to.ignores_scales = true;
  if (const auto sparsity = config.find("sparsity_config"); sparsity && sparsity->has("format"))
    read_word(*sparsity, "format", kMethod, {"dense"});
  if (const auto transform = config.find("transform_config"); transform && !transform->object().json().empty()) {
    if (const auto groups = transform->find("config_groups")) {
      if (groups->object().members().size() > kMostGroups) throw groups->error("has too many groups");
      for (const auto& [name, scheme] : groups->members()) read_rotations(std::string(name), scheme.object(), to);
    }
  }
  check_names(config, "ignore");
  const auto groups = config.find("config_groups");
  if (!groups) return;  // only the cache is quantized
  if (groups->object().members().size() > kMostGroups) throw groups->error("has too many groups");
  for (const auto& [name, group] : groups->members()) {
    if (!group.object().has("weights")) continue;
    const JsonField format = group.has("format") ? group.at("format") : config.at("format");
    if (format.string() == "dense") continue;
    Quantization::Part part;
    read_targets(group.at("targets"), part.modules);
    part.scheme = read_scheme(group, format);
    to.parts.push_back(std::move(part));
  }
}

}  // namespace quire
