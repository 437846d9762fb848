// The settings of NVIDIA's ModelOpt: hf_quant_config.json, and what it writes into config.json.
#include <algorithm>
#include <map>
#include <tuple>

#include "base/text/quote.h"
#include "model/quantized/config_values.h"

namespace quire {
namespace {

constexpr std::string_view kModelopt = "modelopt";
constexpr size_t kMostNamedLayers = 1 << 20;
constexpr int kFp8Block = 128;

struct Algorithm {
  std::string_view name;  // quant_algo
  CodedForm form;
  int bits;
  CodedScheme::Scales scales;
  bool int8_inputs = false;
};
using Scales = CodedScheme::Scales;
constexpr Algorithm kAlgorithms[] = {
    {"FP8", CodedForm::kFp8, 8, Scales::kTensor},
    {"FP8_PER_CHANNEL_PER_TOKEN", CodedForm::kFp8, 8, Scales::kChannel},
    {"FP8_PB_WO", CodedForm::kFp8, 8, Scales::kBlock},
    {"MXFP8", CodedForm::kMxfp8, 8, Scales::kGroup},
    {"NVFP4", CodedForm::kNvfp4, 4, Scales::kGroup},
    {"NVFP4_AWQ", CodedForm::kNvfp4, 4, Scales::kGroup},
    {"W4A16_NVFP4", CodedForm::kNvfp4, 4, Scales::kGroup},
    {"W4A8_NVFP4_FP8", CodedForm::kNvfp4, 4, Scales::kGroup},
    {"MXFP4", CodedForm::kMxfp4, 4, Scales::kGroup},
    {"W4A8_MXFP4_FP8", CodedForm::kMxfp4, 4, Scales::kGroup},
    {"W4A16_AWQ", CodedForm::kInt4Pairs, 4, Scales::kGroup},
    {"W4A8_AWQ", CodedForm::kInt4Pairs, 4, Scales::kGroup},
    {"W8A16", CodedForm::kInt8, 8, Scales::kChannel},
    {"W8A8_SQ_PER_CHANNEL", CodedForm::kInt8, 8, Scales::kChannel, true},
};

// Some algorithms have lower case in some versions.
const Algorithm& find_algorithm(const JsonField& field) {
  std::string wanted = field.string();
  std::ranges::transform(wanted, wanted.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  const auto* found = std::ranges::find(kAlgorithms, wanted, &Algorithm::name);
  if (found != std::end(kAlgorithms)) return *found;
  std::vector<std::string_view> names;
  for (const Algorithm& a : kAlgorithms) names.push_back(a.name);
  throw not_supported(field, kModelopt, "use " + one_of(names));
}

CodedScheme read_layer_scheme(const JsonField& settings) {
  const Algorithm& algorithm = find_algorithm(settings.at("quant_algo"));
  if (settings.get_or<bool>("has_zero_point", false))
    throw not_supported(settings.at("has_zero_point"), kModelopt, "use false");
  CodedScheme scheme;
  scheme.form = algorithm.form;
  scheme.bits = algorithm.bits;
  scheme.scales = algorithm.scales;
  if (algorithm.int8_inputs) scheme.inputs.kind = InputCodes::Kind::kPerToken;
  if (scheme.scales == Scales::kBlock) scheme.row_block = scheme.col_block = kFp8Block, scheme.squeezed = true;
  if (scheme.form == CodedForm::kMxfp4 || scheme.form == CodedForm::kMxfp8) {
    scheme.group = settings.has("group_size") ? read_choice(settings, "group_size", kModelopt, {32}) : 32;
  } else if (scheme.scales == Scales::kGroup) {
    scheme.group = read_group_size(settings, "group_size", kModelopt);
  }
  return scheme;
}

// MIXED_PRECISION: modules of one scheme are one part.
void read_layers(const JsonField& layers, Quantization& to) {
  const auto members = layers.object().members();
  if (members.size() > kMostNamedLayers) throw layers.error("has too many members");
  std::map<std::tuple<std::string, int64_t>, size_t> parts;
  for (const auto& [name, settings] : members) {
    const CodedScheme scheme = read_layer_scheme(settings.object());
    const auto [part, is_new] =
        parts.try_emplace({settings.get<std::string>("quant_algo"), scheme.group}, to.parts.size());
    if (is_new) to.parts.push_back({{}, scheme});
    to.parts[part->second].modules.names.emplace(name);
  }
}

}  // namespace

void read_modelopt(const JsonField& config, Quantization& to) {
  // hf_quant_config.json has its settings in an object of this name.
  const JsonField settings = config.has("quantization") ? config.at("quantization").object() : config;
  to.ignores_scales = true;
  check_names(settings, "exclude_modules");
  check_names(settings, "ignore");
  if (settings.json().contains("quant_algo") && !settings.has("quant_algo"))
    return;  // null: only the cache is quantized
  if (settings.get<std::string>("quant_algo") == "MIXED_PRECISION")
    return read_layers(settings.at("quantized_layers"), to);
  use_for_all(read_layer_scheme(settings), to);
}

}  // namespace quire
