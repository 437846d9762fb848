#include "engine/loaded_model.h"

#include <algorithm>

#include "base/cpu.h"
#include "base/error.h"
#include "model/registry.h"

namespace quire {
namespace {

Activations parse_activations(const std::string& name) {
  if (name == "f32") return Activations::kF32;
  if (name == "bf16") return Activations::kBf16;
  if (name == "auto" || name == "default" || name == "int8") return Activations::kInt8;
  throw invalid("--activations '{}': there are auto, f32, bf16, int8", name);
}
std::string_view name_of(Activations a) {
  return a == Activations::kF32 ? "f32" : a == Activations::kBf16 ? "bf16" : "int8";
}

KvType parse_kv_type(const std::string& name, Activations activations) {
  if (name == "auto") return activations == Activations::kF32 ? KvType::kF32 : KvType::kBf16;
  if (name == "f32") return KvType::kF32;
  if (name == "f16") return KvType::kF16;
  if (name == "bf16") return KvType::kBf16;
  throw invalid("--kv-cache-dtype '{}': there are auto, f32, f16, bf16", name);
}
std::string_view name_of(KvType t) { return t == KvType::kF32 ? "f32" : t == KvType::kF16 ? "f16" : "bf16"; }

void check_positive(const char* flag, int value, int lowest) {
  if (value < lowest) throw invalid("{} {}: at least {}", flag, value, lowest);
}

// Pages for the cache, and the context length that fits them.
void size_cache(const EngineOptions& options, const KvShape& shape, int model_positions, ModelInfo& info) {
  const size_t page_bytes = shape.page_bytes();
  int length = options.max_model_len > 0 ? options.max_model_len : model_positions;
  if (length > model_positions)
    throw invalid("--max-model-len {}: the model was trained for {} tokens", length, model_positions);
  const auto pages_of = [](int tokens) { return static_cast<size_t>((tokens + kPageTokens - 1) / kPageTokens); };
  const size_t wanted = pages_of(length) * static_cast<size_t>(options.max_num_seqs) * page_bytes;
  const size_t available = available_memory();
  const size_t budget = options.kv_cache_bytes > 0 ? options.kv_cache_bytes : std::min(wanted, available / 4);
  const size_t pages = std::min<size_t>(budget / page_bytes, size_t{1} << 30);
  if (pages < pages_of(length)) {
    if (options.max_model_len > 0 || pages == 0) {
      throw no_resource(
          "one sequence of {} tokens needs {} MiB of KV cache, there are {} MiB: lower --max-model-len or raise "
          "--kv-cache-size",
          length, pages_of(length) * page_bytes >> 20, budget >> 20);
    }
    length = static_cast<int>(pages) * kPageTokens;
  }
  if (pages * page_bytes > available)
    throw no_resource("the KV cache needs {} MiB, {} MiB are free: lower --kv-cache-size", pages * page_bytes >> 20,
                      available >> 20);
  info.max_model_len = length;
  info.kv_pages = static_cast<int>(pages);
  info.page_tokens = kPageTokens;
  info.kv_bytes_per_token = page_bytes / kPageTokens;
  info.kv_cache_bytes = pages * page_bytes;
}

ModelConfig read_config(const Checkpoint& checkpoint, const Family& family) {
  ModelConfig config = checkpoint.gguf() ? family.from_gguf(*checkpoint.gguf()) : family.from_hf(*checkpoint.hf());
  validate(config, checkpoint.file());
  return config;
}

}  // namespace

LoadedModel::LoadedModel(const EngineOptions& options, int max_logits)
    : team(options.threads > 0 ? options.threads : usable_cores()) {
  if (options.threads < 0 || options.threads > 1024)
    throw invalid("--threads {}: 0 (all cores) to 1024", options.threads);
  check_positive("--max-num-seqs", options.max_num_seqs, 1);
  check_positive("--max-num-batched-tokens", options.max_num_batched_tokens, 1);
  check_positive("--max-model-len", options.max_model_len, 0);
  const KernelSet& kernels = choose_kernels(options.kernels);
  const Activations activations = parse_activations(options.activations);
  const KvType kv_type = parse_kv_type(options.kv_cache_dtype, activations);

  const Checkpoint checkpoint = Checkpoint::open(resolve_model(options.model));
  const Family& family = find_family(checkpoint);
  config = read_config(checkpoint, family);
  text = load_model_text(checkpoint);
  if (text.tokenizer && text.tokenizer->vocab_size() > config.vocab) {
    throw invalid("{}: the tokenizer has {} tokens, the model {}", checkpoint.file(), text.tokenizer->vocab_size(),
                  config.vocab);
  }
  if (text.template_source) chat_template = ChatTemplate::parse(*text.template_source, checkpoint.file());
  weights = load_weights(checkpoint, family, config, team);

  info.name = options.model;
  info.architecture = config.architecture;
  info.quantization = name(weights.main_type);
  info.kernels = kernels.name;
  info.activations = name_of(activations);
  info.kv_cache_dtype = name_of(kv_type);
  info.threads = team.size();
  info.vocab_size = config.vocab;
  info.layers = config.layers;
  info.hidden = config.hidden;
  info.heads = config.heads;
  info.kv_heads = config.kv_heads;
  info.head_dim = config.head_dim;
  info.parameters = weights.parameters;
  info.weight_bytes = weights.memory.size();
  info.decode_bytes = weights.decode_bytes();
  const KvShape shape{kv_type, config.layers, config.kv_heads, config.head_dim};
  size_cache(options, shape, config.max_positions, info);
  kv = std::make_unique<KvMemory>(shape, info.kv_pages);
  // A prompt that may not be cut can come on top of the rows that a step has already.
  const int rows = std::max(options.max_num_batched_tokens, options.max_num_seqs) +
                   (options.chunked_prefill && options.kv_cache ? 0 : info.max_model_len);
  decoder = std::make_unique<Decoder>(
      config, weights, *kv, Compute{kernels, team, activations},
      DecoderLimits{rows, max_logits > 0 ? max_logits : options.max_num_seqs, info.max_model_len});
}

}  // namespace quire
