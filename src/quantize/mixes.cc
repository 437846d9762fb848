// Source of the rules: llama_tensor_get_type_impl() in src/llama-quant.cpp of llama.cpp (b11434), as a table.
#include "quantize/mixes.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <iterator>
#include <variant>

#include "base/error.h"
#include "base/text/nearest.h"

namespace quire {
namespace {

using T = TensorType;

// clang-format off
constexpr Mix kMixes[] = {
    {"F32", T::F32, 0},
    {"F16", T::F16, 1},
    {"BF16", T::BF16, 32},
    {"Q8_0", T::Q8_0, 7},
    {"Q6_K", T::Q6_K, 18},
    {"Q5_K_M", T::Q5_K, 17},
    {"Q5_K_S", T::Q5_K, 16},
    {"Q5_1", T::Q5_1, 9},
    {"Q5_0", T::Q5_0, 8},
    {"Q4_K_M", T::Q4_K, 15},
    {"Q4_K_S", T::Q4_K, 14},
    {"IQ4_NL", T::IQ4_NL, 25},
    {"IQ4_XS", T::IQ4_XS, 30},
    {"Q4_1", T::Q4_1, 3},
    {"Q4_0", T::Q4_0, 2},
    {"MXFP4", T::MXFP4, 38},
    {"MXFP4_MOE", T::MXFP4, 38},
    {"NVFP4", T::NVFP4, 39},
    {"Q3_K_L", T::Q3_K, 13},
    {"Q3_K_M", T::Q3_K, 12},
    {"Q3_K_S", T::Q3_K, 11},
    {"IQ3_M", T::IQ3_S, 27},
    {"IQ3_S", T::IQ3_S, 26},
    {"IQ3_XS", T::IQ3_S, 22},
    {"IQ3_XXS", T::IQ3_XXS, 23},
    {"Q2_K", T::Q2_K, 10},
    {"Q2_K_S", T::Q2_K, 21},
    {"IQ2_M", T::IQ2_S, 29},
    {"IQ2_S", T::IQ2_XS, 28},
    {"IQ2_XS", T::IQ2_XS, 20},
    {"IQ2_XXS", T::IQ2_XXS, 19},
    {"IQ1_M", T::IQ1_M, 31},
    {"IQ1_S", T::IQ1_S, 24},
    {"TQ2_0", T::TQ2_0, 37},
    {"TQ1_0", T::TQ1_0, 36},
    {"Q2_0", T::Q2_0, 41},
    {"Q1_0", T::Q1_0, 40},
};
// clang-format on

// What a tensor does.
enum class Role : uint8_t { kOutput, kEmbedding, kValue, kKey, kQuery, kAttentionOut, kDown, kGate, kUp, kOther };

// A matrix that no rule names, such as those of recurrent layers, has the mix's type.
struct RoleOf {
  Tensor tensor;
  Role role;
};
constexpr RoleOf kRoles[] = {
    {Tensor::kOutput, Role::kOutput},
    {Tensor::kEmbedding, Role::kEmbedding},
    {Tensor::kPerLayerEmbedding, Role::kEmbedding},
    {Tensor::kV, Role::kValue},
    {Tensor::kK, Role::kKey},
    {Tensor::kQ, Role::kQuery},
    {Tensor::kO, Role::kAttentionOut},
    {Tensor::kDown, Role::kDown},
    {Tensor::kExpertDown, Role::kDown},
    {Tensor::kSharedDown, Role::kDown},
    {Tensor::kGate, Role::kGate},
    {Tensor::kExpertGate, Role::kGate},
    {Tensor::kSharedGate, Role::kGate},
    {Tensor::kUp, Role::kUp},
    {Tensor::kExpertUp, Role::kUp},
    {Tensor::kSharedUp, Role::kUp},
};
// Besides small tables: they are tiny, or rounding them costs too much.
constexpr Tensor kKept[] = {Tensor::kPerLayerProjection, Tensor::kAltUpProjection, Tensor::kAltUpUnembed,
                            Tensor::kAltUpRouter,        Tensor::kAltUpPredict,    Tensor::kAltUpCorrect,
                            Tensor::kLaurelLeft,         Tensor::kLaurelRight};

bool has(const PlannedTensor& tensor, Tensor matrix) {
  return std::ranges::find(tensor.matrices, matrix) != tensor.matrices.end();
}

Role role_of(const PlannedTensor& tensor) {
  // Fused queries, keys and values count as values, which are the most sensitive.
  if (has(tensor, Tensor::kV) || has(tensor, Tensor::kDeltaV)) return Role::kValue;
  const auto* row = std::ranges::find(kRoles, tensor.matrices.front(), &RoleOf::tensor);
  return row == std::end(kRoles) ? Role::kOther : row->role;
}

// What a rule may ask for. Layers are counted from the first: `early` ones are the first eighth.
enum Circumstance : uint32_t {
  kImportance = 1 << 0,
  kNoImportance = 1 << 1,
  kManyQueries = 1 << 2,  // at least four for each key
  kFourExperts = 1 << 3,  // at least
  kEightExperts = 1 << 4,
  kNotEightExperts = 1 << 5,
  kFalcon = 1 << 6,
  kNotFalcon = 1 << 7,
  kFirstTwo = 1 << 8,
  kFirstFour = 1 << 9,
  kSixteenth = 1 << 10,  // the first of the layers
  kEarly = 1 << 11,
  kMiddle = 1 << 12,     // neither the first eighth nor the last
  kSensitive = 1 << 13,  // the first and the last eighth, and every third layer between them
};

constexpr std::string_view kBelowThreeBits = "IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ2_M";

// The first rule that fits decides. mixes: separated by spaces.
struct Rule {
  std::string_view mixes;
  Role role;
  uint32_t when;
  TensorType type;
};
// clang-format off
constexpr Rule kRules[] = {
    {"IQ2_XXS IQ2_XS IQ1_S IQ1_M", Role::kEmbedding, 0, T::Q2_K},
    {"IQ2_S IQ2_M IQ3_XXS", Role::kEmbedding, 0, T::IQ3_S},
    {"TQ1_0 TQ2_0 Q2_0", Role::kEmbedding, 0, T::Q4_K},

    {kBelowThreeBits, Role::kValue, kManyQueries, T::Q4_K},
    {kBelowThreeBits, Role::kValue, kFourExperts, T::Q4_K},
    {"IQ2_S IQ2_M", Role::kValue, 0, T::IQ3_S},
    {"IQ1_S IQ1_M IQ2_XXS IQ2_XS", Role::kValue, 0, T::Q2_K},
    {"", Role::kValue, kEightExperts, T::Q8_0},
    {"Q2_K", Role::kValue, kManyQueries, T::Q4_K},
    {"Q2_K", Role::kValue, 0, T::Q3_K},
    {"Q2_K_S", Role::kValue, kManyQueries, T::Q4_K},
    {"IQ3_XXS", Role::kValue, kManyQueries, T::Q4_K},
    {"IQ3_XXS", Role::kValue, kNoImportance, T::IQ3_S},
    {"IQ3_XS IQ3_S", Role::kValue, kManyQueries, T::Q4_K},
    {"IQ3_M", Role::kValue, 0, T::Q4_K},
    {"Q3_K_M", Role::kValue, kFirstTwo, T::Q5_K},
    {"Q3_K_M", Role::kValue, 0, T::Q4_K},
    {"Q3_K_L", Role::kValue, 0, T::Q5_K},
    {"IQ4_NL IQ4_XS", Role::kValue, kManyQueries, T::Q5_K},
    {"Q4_K_M Q5_K_M", Role::kValue, kSensitive, T::Q6_K},
    {"Q4_K_S", Role::kValue, kFirstFour, T::Q5_K},

    {kBelowThreeBits, Role::kKey, kEightExperts, T::Q4_K},
    {"", Role::kKey, kEightExperts, T::Q8_0},
    {"IQ3_XS", Role::kKey, 0, T::IQ3_XXS},
    {"IQ3_XXS", Role::kKey, 0, T::IQ2_S},
    {"IQ3_XS", Role::kQuery, 0, T::IQ3_XXS},
    {"IQ3_XXS", Role::kQuery, 0, T::IQ2_S},

    {"IQ2_S IQ2_M", Role::kDown, kEarly, T::IQ3_S},
    {"IQ1_S IQ1_M IQ2_XXS IQ2_XS", Role::kDown, kEarly, T::Q2_K},
    {"Q2_K", Role::kDown, 0, T::Q3_K},
    {"Q2_K_S", Role::kDown, kEarly, T::Q4_K},
    {"IQ3_XXS", Role::kDown, kNoImportance | kEarly, T::Q4_K},
    {"IQ3_XXS", Role::kDown, kNoImportance, T::Q3_K},
    {"Q3_K_M", Role::kDown, kSixteenth, T::Q5_K},
    {"Q3_K_M", Role::kDown, kNotFalcon, T::Q4_K},
    {"Q3_K_M", Role::kDown, kSensitive, T::Q4_K},
    {"IQ3_M", Role::kDown, kEarly, T::Q4_K},
    {"IQ3_M", Role::kDown, kEightExperts | kSensitive, T::Q4_K},
    {"Q3_K_L", Role::kDown, kFalcon, T::Q4_K},
    {"Q3_K_L", Role::kDown, 0, T::Q5_K},
    {"Q4_K_M", Role::kDown, kFalcon | kSixteenth, T::Q6_K},
    {"Q4_K_M", Role::kDown, kFalcon | kSensitive, T::Q5_K},
    {"Q4_K_M", Role::kDown, kNotFalcon | kSensitive, T::Q6_K},
    {"IQ4_NL IQ4_XS", Role::kDown, kEarly | kNoImportance, T::Q5_K},
    {"Q5_K_M", Role::kDown, kSensitive, T::Q6_K},
    {"Q4_K_S", Role::kDown, kEarly | kNotFalcon, T::Q5_K},
    {"Q4_0", Role::kDown, kEarly | kImportance, T::Q4_1},
    {"Q5_0", Role::kDown, kEarly | kImportance, T::Q5_1},

    {kBelowThreeBits, Role::kAttentionOut, kEightExperts, T::Q5_K},
    {"IQ1_S IQ1_M", Role::kAttentionOut, 0, T::IQ2_XXS},
    {"IQ2_S IQ2_M", Role::kAttentionOut, 0, T::IQ3_S},
    {"Q2_K IQ3_XS IQ3_XXS Q3_K_S Q3_K_M IQ4_NL Q4_K_S Q4_K_M IQ3_S IQ3_M IQ4_XS", Role::kAttentionOut,
     kEightExperts | kNotFalcon, T::Q5_K},
    {"Q2_K", Role::kAttentionOut, kNotEightExperts | kNotFalcon, T::Q3_K},
    {"IQ3_XXS", Role::kAttentionOut, kNotEightExperts | kNotFalcon, T::IQ3_S},
    {"Q3_K_M IQ3_M", Role::kAttentionOut, kNotEightExperts | kNotFalcon, T::Q4_K},
    {"Q3_K_L", Role::kAttentionOut, kNotEightExperts | kNotFalcon, T::Q5_K},
    {"Q3_K_L", Role::kAttentionOut, kFalcon, T::Q4_K},

    {"IQ3_XS", Role::kGate, kMiddle, T::IQ3_XXS},
    {"IQ3_XS", Role::kUp, kMiddle, T::IQ3_XXS},
};
// clang-format on

// Whether `names` has the mix; "": all but those whose rules came before.
bool lists(std::string_view names, std::string_view mix) {
  if (names.empty()) return true;
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    if (names.substr(0, end) == mix) return true;
    names.remove_prefix(std::min(names.size(), end + 1));
  }
  return false;
}

int experts_of(const ModelConfig& config) {
  for (const LayerSpec& layer : config.layers) {
    if (const auto* moe = std::get_if<Moe>(&layer.ffn)) return moe->routing.experts;
  }
  return 0;
}

}  // namespace

std::span<const Mix> mixes() { return kMixes; }

const Mix& find_mix(std::string_view name) {
  std::string upper(name);
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  for (const std::string_view medium : {"Q3_K", "Q4_K", "Q5_K"}) {
    if (upper == medium) upper += "_M";
  }
  const auto* mix = std::ranges::find(kMixes, std::string_view(upper), &Mix::name);
  if (mix != std::end(kMixes)) return *mix;
  std::vector<std::string> names;
  for (const Mix& known : kMixes) names.emplace_back(known.name);
  std::string list;
  for (const std::string& known : names) list += (list.empty() ? "" : ", ") + known;
  throw invalid("{} is not a type or mix of types.{} There are {}", name, did_you_mean(upper, names), list);
}

const Mix& mix_of(TensorType type) {
  const auto* mix = std::ranges::find(kMixes, type, &Mix::type);
  return mix == std::end(kMixes) ? mix_of(T::F16) : *mix;
}

MixedTypes::MixedTypes(const Mix& mix, const ModelConfig& config, std::string_view architecture, bool has_importance,
                       std::span<const PlannedTensor> tensors)
    : mix_(mix),
      has_importance_(has_importance),
      is_tied_(config.tied_output),
      experts_(experts_of(config)),
      queries_per_key_(1),
      is_falcon_(architecture == "falcon"),
      is_70b_(false),
      layers_(static_cast<int>(config.layers.size()) + config.predicting_layers) {
  if (const auto attention = first_attention(config); attention && attention->kv_heads > 0) {
    queries_per_key_ = attention->heads / attention->kv_heads;
    is_70b_ = architecture == "llama" && config.layers.size() == 80 && attention->heads != attention->kv_heads;
  }
  value_count_ = static_cast<int>(std::ranges::count_if(
      tensors, [](const PlannedTensor& t) { return !t.matrices.empty() && role_of(t) == Role::kValue; }));
}

bool MixedTypes::may_change(const PlannedTensor& tensor) {
  return std::ranges::none_of(tensor.matrices,
                              [](Tensor matrix) {
                                return is_small_table(matrix) || std::ranges::find(kKept, matrix) != std::end(kKept);
                              }) &&
         !tensor.matrices.empty() && tensor.shape.size() > 1;
}

uint32_t MixedTypes::circumstances(int index, int count) const {
  uint32_t now = has_importance_ ? kImportance : kNoImportance;
  const auto add = [&](bool holds, Circumstance which) { now |= holds ? uint32_t{which} : 0; };
  add(queries_per_key_ >= 4, kManyQueries);
  add(experts_ >= 4, kFourExperts);
  now |= experts_ == 8 ? kEightExperts : kNotEightExperts;
  now |= is_falcon_ ? kFalcon : kNotFalcon;
  add(index < 2, kFirstTwo);
  add(index < 4, kFirstFour);
  add(index < count / 16, kSixteenth);
  add(index < count / 8, kEarly);
  add(index >= count / 8 && index < 7 * count / 8, kMiddle);
  add(index < count / 8 || index >= 7 * count / 8 || (index - count / 8) % 3 == 2, kSensitive);
  return now;
}

TensorType MixedTypes::type_of(const PlannedTensor& tensor) {
  Role role = role_of(tensor);
  if (role == Role::kEmbedding && is_tied_) role = Role::kOutput;
  if (info(mix_.type).block_elements == 1) return mix_.type;
  const bool is_expert =
      has(tensor, Tensor::kExpertGate) || has(tensor, Tensor::kExpertUp) || has(tensor, Tensor::kExpertDown);
  if (mix_.name == "MXFP4_MOE") return is_expert ? T::MXFP4 : T::Q8_0;
  if (role == Role::kOutput) {
    constexpr std::string_view kSmallest = "IQ2_XXS IQ2_XS IQ3_XXS IQ1_S IQ2_S IQ2_M IQ1_M";
    if (is_falcon_ || tensor.cols() % info(mix_.type).block_elements != 0 || mix_.type == T::Q8_0) return T::Q8_0;
    if (mix_.type == T::MXFP4 || mix_.type == T::NVFP4) return T::Q8_0;
    return lists(kSmallest, mix_.name) ? T::Q5_K : T::Q6_K;
  }
  int index = 0, count = layers_;
  if (role == Role::kValue) index = values_++, count = value_count_;
  if (role == Role::kDown) index = downs_++;
  if (role == Role::kGate) index = gates_++;
  if (role == Role::kUp) index = ups_++;
  // Layers have several of them; but below 3 bits llama.cpp counts these, too.
  const bool below_three_bits = lists(kBelowThreeBits, mix_.name);
  if (experts_ > 1 && role != Role::kValue && !below_three_bits) index = tensor.layer;
  const uint32_t now = circumstances(index, count);
  TensorType type = mix_.type;
  for (const Rule& rule : kRules) {
    if (rule.role != role || (rule.when & ~now) != 0 || !lists(rule.mixes, mix_.name)) continue;
    type = rule.type;
    break;
  }
  // Eight heads share the values of a 70B model, whose matrix is small enough to spend more on.
  if (role == Role::kValue && is_70b_ && !below_three_bits && (type == T::Q3_K || type == T::Q4_K)) type = T::Q5_K;
  return type;
}

}  // namespace quire
