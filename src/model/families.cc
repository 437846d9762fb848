#include "model/families.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "model/nearest_architecture.h"
#include "model/pooled_output.h"
#include "model/quantized/input_transforms.h"
#include "model/quantized/quantization.h"
#include "model/tensor_finder.h"

namespace quire {

// One row per family: its file in families/, its models, and what its cache keeps of a sequence.
// clang-format off
#define QUIRE_FAMILIES(F)                                                                     \
  F(llama, kLlama, "Llama 1 to 3.x, SmolLM 1 and 2, TinyLlama, Vicuna, Yi", "all tokens")     \
  F(llama, kMistral, "Mistral 7B, Mistral Nemo, Mistral Small (GGUF: as llama)", "window")    \
  F(llama, kMinistral3, "Ministral 3", "all tokens")                                          \
  F(llama, kSmolLm3, "SmolLM3", "all tokens")                                                 \
  F(llama, kSeedOss, "Seed-OSS", "all tokens")                                                \
  F(internlm, kInternLm2, "InternLM 2, 2.5", "all tokens")                                    \
  F(arcee, kArcee, "Arcee AFM", "all tokens")                                                 \
  F(qwen, kQwen2, "Qwen2, Qwen2.5", "all tokens")                                             \
  F(qwen, kQwen3, "Qwen3", "all tokens")                                                      \
  F(qwen, kQwen2Moe, "Qwen1.5-MoE, Qwen2-MoE", "all tokens")                                  \
  F(qwen, kQwen3Moe, "Qwen3-MoE", "all tokens")                                               \
  F(gemma, kGemma, "Gemma 1", "all tokens")                                                   \
  F(gemma, kGemma2, "Gemma 2", "window in every 2nd layer")                                   \
  F(gemma, kGemma3, "Gemma 3 (text)", "window in 5 of 6 layers")                              \
  F(gemma3n, kGemma3n, "Gemma 3n (text)", "window in 4 of 5 layers; later layers share")      \
  F(gemma4, kGemma4, "Gemma 4 (text)", "window in 5 of 6 layers; later layers may share")     \
  F(phi, kPhi, "Phi-1, Phi-1.5, Phi-2", "all tokens")                                         \
  F(phi, kPhi3, "Phi-3, Phi-3.5, Phi-4", "all tokens, or window")                             \
  F(glm, kGlm, "GLM-4 9B (GGUF: chatglm)", "all tokens")                                      \
  F(glm, kGlm4, "GLM-4-0414", "all tokens")                                                   \
  F(hunyuan, kHunyuan, "Hunyuan (dense)", "all tokens")                                       \
  F(ernie, kErnie, "ERNIE 4.5 (dense)", "all tokens")                                         \
  F(gpt, kGpt2, "GPT-2", "all tokens")                                                        \
  F(gpt, kGptNeox, "GPT-NeoX, Pythia", "all tokens")                                          \
  F(gpt, kGptJ, "GPT-J", "all tokens")                                                        \
  F(falcon, kFalcon, "Falcon", "all tokens")                                                  \
  F(bloom, kBloom, "BLOOM", "all tokens")                                                     \
  F(bloom, kMpt, "MPT", "all tokens")                                                         \
  F(cohere, kCohere, "Command-R", "all tokens")                                               \
  F(cohere, kCohere2, "Command-R7B, Command-A", "window in 3 of 4 layers")                    \
  F(olmo, kOlmo, "OLMo 1", "all tokens")                                                      \
  F(olmo, kOlmo2, "OLMo 2", "all tokens")                                                     \
  F(olmo, kOlmo3, "OLMo 3", "window in 3 of 4 layers")                                        \
  F(olmo, kOlmoe, "OLMoE", "all tokens")                                                      \
  F(olmo, kExaone4, "EXAONE 4", "window in 3 of 4 layers (32B)")                              \
  F(granite, kGranite, "Granite 3, Granite 4 (dense)", "all tokens")                          \
  F(granite, kStarcoder2, "StarCoder2", "all tokens, or window")                              \
  F(granite, kStableLm, "StableLM 2 (1.6B, 12B)", "all tokens")                               \
  F(granite, kBitNet, "BitNet b1.58, weights not packed", "all tokens")                       \
  F(experts, kMixtral, "Mixtral (GGUF: as llama)", "all tokens")                              \
  F(experts, kMinimaxM2, "MiniMax-M2", "all tokens")                                          \
  F(experts, kGlm4Moe, "GLM-4.5, GLM-4.6", "all tokens")                                      \
  F(phimoe, kPhiMoe, "Phi-3.5-MoE", "all tokens")                                             \
  F(ernie, kErnieMoe, "ERNIE 4.5 (experts)", "all tokens")                                    \
  F(hunyuan, kHunyuanMoe, "Hunyuan (experts)", "all tokens")                                  \
  F(experts, kGptOss, "gpt-oss", "window in every 2nd layer")                                 \
  F(deepseek, kDeepseekV2, "DeepSeek-V2, V2-Lite", "a latent per token")                      \
  F(deepseek, kDeepseekV3, "DeepSeek-V3, R1 (GGUF: as deepseek2)", "a latent per token")      \
  F(qwen_next, kQwen3Next, "Qwen3-Next", "every 4th layer; states")                           \
  F(qwen_next, kQwen35, "Qwen 3.5 (dense)", "every 4th layer; states")                        \
  F(qwen_next, kQwen35Moe, "Qwen 3.5 (experts)", "every 4th layer; states")                   \
  F(lfm2, kLfm2, "LFM2", "a few layers; short states")                                        \
  F(lfm2, kLfm2Moe, "LFM2 (experts)", "a few layers; short states")                           \
  F(mamba, kMamba2, "Mamba-2", "states only")                                                 \
  F(mamba, kGraniteHybrid, "Granite 4 (hybrid)", "a few layers; states")                      \
  F(falcon_h1, kFalconH1, "Falcon-H1", "all tokens, and states")                              \
  F(nemotron, kNemotronH, "Nemotron-H, Nemotron Nano 2 and 3", "a few layers; states")        \
  F(nemotron, kNemotronHMoe, "Nemotron-H with experts, as GGUF", "a few layers; states")      \
  F(bert, kBert, "BERT, BGE, E5, GTE, MiniLM (encoders, cross-encoders)", "none")             \
  F(bert, kRoberta, "RoBERTa, XLM-R, BGE-M3, multilingual E5 (likewise)", "none")             \
  F(bert, kDistilBert, "DistilBERT (likewise)", "none")                                       \
  F(bert, kNomicBert, "Nomic Embed (encoders)", "none")                                       \
  F(modernbert, kModernBert, "ModernBERT, GTE-ModernBERT (encoders, cross-encoders)", "none")
// clang-format on

#define QUIRE_DECLARE(file, family, models, cache) \
  namespace file {                                 \
  extern const Family family;                      \
  }
QUIRE_FAMILIES(QUIRE_DECLARE)
#undef QUIRE_DECLARE

namespace {

#define QUIRE_ADDRESS(file, family, models, cache) &file::family,
constexpr const Family* kFamilies[] = {QUIRE_FAMILIES(QUIRE_ADDRESS)};
#undef QUIRE_ADDRESS
#define QUIRE_DESCRIPTION(file, family, models, cache) {models, cache},
constexpr FamilyDescription kDescriptions[] = {QUIRE_FAMILIES(QUIRE_DESCRIPTION)};
#undef QUIRE_DESCRIPTION

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

// The family of a name in `architectures`; nullptr: none.
const Family* find_hf_family(const std::string& architecture) {
  const std::string decoder = decoder_of(architecture);
  for (const Family* family : kFamilies) {
    const auto is_it = [&](std::string_view name) { return name == architecture || name == decoder; };
    if (std::ranges::any_of(family->hf_architectures, is_it)) return family;
  }
  return nullptr;
}

}  // namespace

std::span<const Family* const> families() { return kFamilies; }
std::span<const FamilyDescription> family_descriptions() { return kDescriptions; }

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
    if (const Family* const family = find_hf_family(wanted)) return *family;
    for (const Family* family : kFamilies) {
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

namespace {

// Whether weights can be E4M3: what they are is in the files.
bool can_be_fp8(CodedForm form) {
  using enum CodedForm;
  return form == kFp8 || form == kMxfp8 || form == kMlx || form == kTorchao;
}

InputForms input_forms(const Checkpoint& checkpoint) {
  InputForms forms;
  const auto quantization = read_quantization(*checkpoint.hf());
  if (!quantization) return forms;
  for (const Quantization::Part& part : quantization->parts) {
    forms.transforms |= part.scheme.act_order;
    forms.int8_rows |= part.scheme.inputs.kind != InputCodes::Kind::kNone;
    forms.fp8 |= can_be_fp8(part.scheme.form);
  }
  forms.transforms |= !quantization->rotations.empty() || std::ranges::any_of(checkpoint.tensors(), has_input_factors);
  return forms;
}

// As transformers 5: an output matrix that is not the embedding is used, although the settings call it tied.
void use_untied_output(const Checkpoint& checkpoint, ModelConfig& c) {
  if (!checkpoint.hf() || !c.tied_output || !c.has_logits) return;
  const TensorFinder finder(checkpoint, c, spelling_of(checkpoint));
  const TensorView* const output = finder.find(finder.source_of({Tensor::kOutput}).name);
  const TensorView* const embedding = finder.find(finder.source_of({Tensor::kEmbedding}).name);
  if (!output || !embedding) return;
  if (output->type == embedding->type && output->bytes.size() == embedding->bytes.size() &&
      std::memcmp(output->bytes.data(), embedding->bytes.data(), output->bytes.size()) == 0)
    return;
  c.tied_output = false;
  c.warnings.push_back(fmt::format(
      "{}: tie_word_embeddings is true, but {} differs from the embedding; it is used, as transformers 5 does "
      "(vLLM and transformers 4 use the embedding)",
      checkpoint.file(), output->name));
}

}  // namespace

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
  if (checkpoint.hf()) config.input_forms = input_forms(checkpoint);
  fill_defaults(config, family);
  read_pooled_output(checkpoint, config);
  use_untied_output(checkpoint, config);
  validate(config, checkpoint.file());
  return config;
}

std::optional<ModelConfig> read_model_config(const HfConfig& files, const std::string& file) {
  const auto names = files.config.optional<std::vector<std::string>>("architectures");
  const Family* const family = names && !names->empty() ? find_hf_family(names->front()) : nullptr;
  if (!family) return std::nullopt;
  const HfSettings settings(files);
  ModelConfig config = family->from_hf(settings);
  settings.refuse_unread(family->name);
  fill_defaults(config, *family);
  validate(config, file);
  return config;
}

}  // namespace quire
