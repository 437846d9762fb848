// The settings of Intel's auto-round: one scheme, and others for some modules (extra_config). Its layouts of tensors are
// those of other methods.
#include <algorithm>

#include "model/quantized/config_values.h"

namespace quire {
namespace {

constexpr std::string_view kAutoRound = "auto-round";
constexpr size_t kMostExtras = 1 << 20;

// A module's own value, or the model's.
class LayeredSettings {
 public:
  LayeredSettings(const JsonField& model, const JsonField* own) : model_(model), own_(own) {}
  const JsonField& of(std::string_view key) const { return own_ && own_->has(key) ? *own_ : model_; }

 private:
  const JsonField& model_;
  const JsonField* own_;
};

enum class Packing : uint8_t { kGptq, kGptqPlainZeros, kAwq, kFp8, kCompressed };

Packing read_packing(const JsonField& config) {
  constexpr std::string_view kWorks =
      "use auto_round, auto_round:auto_gptq, auto_round:gptqmodel, auto_round:auto_awq, auto_round:fp8_static or "
      "auto_round:llm_compressor";
  const char* const key = config.has("packing_format") ? "packing_format" : "backend";  // as older versions call it
  if (!config.has(key)) return Packing::kGptq;
  const std::string name = config.get<std::string>(key);
  if (name == "auto_round:auto_awq" || name == "auto_round:awq") return Packing::kAwq;
  if (name == "auto_round:gptqmodel") return Packing::kGptqPlainZeros;
  if (name == "auto_round:fp8_static" || name == "auto_round:fp8") return Packing::kFp8;
  if (name == "auto_round:llm_compressor") return Packing::kCompressed;
  // Its own kernels take zero points as they are.
  for (const std::string_view own : {"auto_round", "auto_round:exllamav2", "auto_round:tritonv2", "auto_round:torch"})
    if (name == own) return Packing::kGptqPlainZeros;
  for (const std::string_view gptq :
       {"auto_round:auto_gptq", "auto_round:gptq", "auto_round:gptq:exllamav2", "auto_gptq", "gptq"})
    if (name == gptq) return Packing::kGptq;
  throw not_supported(config.at(key), kAutoRound, kWorks);
}

// The layouts of compressed-tensors.
void read_float_scheme(const LayeredSettings& settings, CodedScheme& scheme) {
  const JsonField type = settings.of("data_type").at("data_type");
  const JsonField& group = settings.of("group_size");
  const std::string& name = type.string();
  scheme.scales = CodedScheme::Scales::kGroup;
  if (name.starts_with("nv_fp")) {
    scheme.form = CodedForm::kNvfp4;
    scheme.bits = read_choice(settings.of("bits"), "bits", kAutoRound, {4});
    scheme.group = read_choice(group, "group_size", kAutoRound, {16});
  } else if (name.starts_with("mx_fp")) {
    scheme.bits = read_choice(settings.of("bits"), "bits", kAutoRound, {4, 8});
    scheme.form = scheme.bits == 4 ? CodedForm::kMxfp4 : CodedForm::kMxfp8;
    scheme.group = read_choice(group, "group_size", kAutoRound, {32});
  } else {
    throw not_supported(type, kAutoRound, "use int, fp8, nv_fp or mx_fp");
  }
}

void read_fp8_scheme(const LayeredSettings& settings, CodedScheme& scheme) {
  scheme.form = CodedForm::kFp8;
  scheme.bits = read_choice(settings.of("bits"), "bits", kAutoRound, {8});
  scheme.scales = CodedScheme::Scales::kTensor;
  const auto group = settings.of("group_size").find("group_size");
  if (!group || !group->json().is_array()) return;
  scheme.scales = CodedScheme::Scales::kBlock;
  scheme.scale_ending = ".weight_scale_inv";
  read_block(*group, kAutoRound, scheme);
}

CodedScheme read_module_scheme(const LayeredSettings& settings, Packing packing) {
  CodedScheme scheme;
  if (packing == Packing::kCompressed) return read_float_scheme(settings, scheme), scheme;
  if (packing == Packing::kFp8) return read_fp8_scheme(settings, scheme), scheme;
  read_word(settings.of("data_type"), "data_type", kAutoRound, {"int"});
  scheme.form = packing == Packing::kAwq ? CodedForm::kAwq : CodedForm::kGptq;
  scheme.bits = packing == Packing::kAwq ? read_choice(settings.of("bits"), "bits", "auto-round awq", {4})
                                         : read_choice(settings.of("bits"), "bits", kAutoRound, {2, 3, 4, 8});
  scheme.group = read_group_size(settings.of("group_size"), "group_size", kAutoRound);
  scheme.symmetric = settings.of("sym").get_or<bool>("sym", true);
  scheme.zeros_minus_one = packing == Packing::kGptq;
  return scheme;
}

constexpr int kUnquantizedBits = 16;

// A module's name, or a pattern, which may match anywhere.
ModuleSet modules_named(const std::string& name, const std::string& where) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto is_plain = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '.'; };
  ModuleSet modules;
  modules.names.insert(name);
  if (!std::ranges::all_of(name, is_plain) || name.find('.') == name.npos)
    modules.patterns.emplace_back(fmt::format(".*?(?:{})", name), where);
  return modules;
}

}  // namespace

void read_auto_round(const JsonField& config, Quantization& to) {
  to.ignores_scales = true;
  for (const char* rotation : {"rotation_config", "spinquant_config"}) {
    if (const auto found = config.find(rotation); found && !found->json().empty())
      throw not_supported(*found, kAutoRound, "quantize without rotations");
  }
  const Packing packing = read_packing(config);
  if (const auto extra = config.find("extra_config")) {
    const auto members = extra->object().members();
    if (members.size() > kMostExtras) throw extra->error("has too many members");
    for (const auto& [name, own] : members) {
      if (own.object().get_or<int>("bits", 0) >= kUnquantizedBits) continue;  // its tensors tell
      Quantization::Part part;
      part.scheme = read_module_scheme({config, &own}, packing);
      part.modules = modules_named(std::string(name), own.where());
      to.parts.push_back(std::move(part));
    }
  }
  use_for_all(read_module_scheme({config, nullptr}, packing), to);
}

}  // namespace quire
