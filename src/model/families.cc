#include "model/families.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace quire {

// One row per family, grouped by file.
// clang-format off
#define QUIRE_FAMILIES(F)                                      \
  F(kLlama) F(kMistral) F(kMinistral3) F(kSmolLm3) F(kSeedOss) \
  F(kQwen2) F(kQwen3) F(kQwen2Moe) F(kQwen3Moe)                \
  F(kGemma) F(kGemma2) F(kGemma3)                              \
  F(kPhi) F(kPhi3)                                             \
  F(kGpt2) F(kGptNeox) F(kGptJ)                                \
  F(kFalcon) F(kCohere) F(kCohere2)                            \
  F(kOlmo) F(kOlmo2) F(kOlmo3) F(kOlmoe) F(kExaone4)           \
  F(kGranite) F(kStarcoder2) F(kStableLm) F(kBitNet)           \
  F(kMixtral) F(kMinimaxM2) F(kGlm4Moe) F(kGptOss)             \
  F(kQwen3Next) F(kQwen35) F(kQwen35Moe)                       \
  F(kLfm2) F(kLfm2Moe) F(kMamba2) F(kGraniteHybrid) F(kNemotronH)
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
  for_each_attention(c, [](Attention& a, int) {
    if (a.scale == 0) a.scale = 1.0f / std::sqrt(static_cast<float>(a.key_dim));
  });
}

}  // namespace

std::span<const Family* const> families() { return kFamilies; }

const Family& find_family(const Checkpoint& checkpoint) {
  std::string wanted, known;
  const auto add = [&](std::string_view name) { known += (known.empty() ? "" : ", ") + std::string(name); };
  if (checkpoint.gguf()) {
    wanted = checkpoint.gguf()->get<std::string>("general.architecture");
    for (const Family* family : kFamilies) {
      if (family->gguf_architecture == wanted) return *family;
      if (!family->gguf_architecture.empty()) add(family->gguf_architecture);
    }
  } else {
    const auto names = checkpoint.hf()->config.get<std::vector<std::string>>("architectures");
    if (names.empty()) throw invalid("{}: architectures is empty", checkpoint.file());
    wanted = names.front();
    for (const Family* family : kFamilies) {
      if (std::ranges::find(family->hf_architectures, wanted) != family->hf_architectures.end()) return *family;
      add(family->hf_architectures.front());
    }
  }
  throw unsupported("{}: architecture '{}' is not supported; supported: {}", checkpoint.file(), wanted, known);
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
