#include "model/families.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "model/nearest_architecture.h"

namespace quire {

// One row per family, grouped by file.
// clang-format off
#define QUIRE_FAMILIES(F)                                      \
  F(kLlama) F(kMistral) F(kMinistral3) F(kSmolLm3) F(kSeedOss) \
  F(kQwen2) F(kQwen3) F(kQwen2Moe) F(kQwen3Moe)                \
  F(kGemma) F(kGemma2) F(kGemma3) F(kGemma4)                   \
  F(kPhi) F(kPhi3)                                             \
  F(kGpt2) F(kGptNeox) F(kGptJ)                                \
  F(kFalcon) F(kCohere) F(kCohere2)                            \
  F(kOlmo) F(kOlmo2) F(kOlmo3) F(kOlmoe) F(kExaone4)           \
  F(kGranite) F(kStarcoder2) F(kStableLm) F(kBitNet)           \
  F(kMixtral) F(kMinimaxM2) F(kGlm4Moe) F(kGptOss)             \
  F(kDeepseekV2) F(kDeepseekV3)
// clang-format on

#define QUIRE_DECLARE(family) extern const Family family;
QUIRE_FAMILIES(QUIRE_DECLARE)
#undef QUIRE_DECLARE

namespace {

#define QUIRE_ADDRESS(family) &family,
constexpr const Family* kFamilies[] = {QUIRE_FAMILIES(QUIRE_ADDRESS)};
#undef QUIRE_ADDRESS

// What families leave open, by the rules of most.
void fill_defaults(ModelConfig& c, const Family& family) {
  c.architecture = family.name;
  for (LayerSpec& layer : c.layers) {
    if (auto* a = std::get_if<Attention>(&layer.mixer); a && a->scale == 0)
      a->scale = 1.0f / std::sqrt(static_cast<float>(a->key_dim));
    if (auto* m = std::get_if<Mla>(&layer.mixer); m && m->scale == 0)
      m->scale = 1.0f / std::sqrt(static_cast<float>(m->nope_dim + m->rope_dim));
  }
}

}  // namespace

std::span<const Family* const> families() { return kFamilies; }

const Family& find_family(const Checkpoint& checkpoint) {
  std::string wanted;
  std::vector<std::string_view> known;
  if (checkpoint.gguf()) {
    wanted = checkpoint.gguf()->get<std::string>("general.architecture");
    for (const Family* family : kFamilies) {
      if (family->gguf_architecture == wanted) return *family;
      if (!family->gguf_architecture.empty()) known.push_back(family->gguf_architecture);
    }
  } else {
    const auto names = checkpoint.hf()->config.get<std::vector<std::string>>("architectures");
    if (names.empty()) throw invalid("{} is empty", checkpoint.hf()->config.where("architectures"));
    wanted = names.front();
    for (const Family* family : kFamilies) {
      if (std::ranges::find(family->hf_architectures, wanted) != family->hf_architectures.end()) return *family;
      known.insert(known.end(), family->hf_architectures.begin(), family->hf_architectures.end());
    }
  }
  const std::string_view nearest = nearest_architecture(wanted, known);
  throw unsupported("{}: architecture '{}' is not supported{}; supported: {}", checkpoint.file(), wanted,
                    nearest.empty() ? "" : fmt::format(", but {} is", nearest), fmt::join(known, ", "));
}

const Spelling& spelling_of(const Checkpoint& checkpoint) {
  const Family& family = find_family(checkpoint);
  return checkpoint.gguf() ? family.gguf : family.hf;
}

ModelConfig read_model_config(const Checkpoint& checkpoint) {
  const Family& family = find_family(checkpoint);
  ModelConfig config;
  if (checkpoint.gguf()) {
    const GgufSettings settings(*checkpoint.gguf());
    config = family.from_gguf(settings);
    settings.refuse_unread();
  } else {
    const HfSettings settings(*checkpoint.hf());
    config = family.from_hf(settings);
    settings.refuse_unread(family.name);
  }
  fill_defaults(config, family);
  validate(config, checkpoint.file());
  return config;
}

}  // namespace quire
