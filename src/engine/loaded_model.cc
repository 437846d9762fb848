#include "engine/loaded_model.h"

#include <spdlog/spdlog.h>
#include <xxhash.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "base/cpu.h"
#include "base/error.h"
#include "base/quote.h"
#include "engine/cache/cache_size.h"
#include "engine/cache/page_cache.h"
#include "engine/drafting/draft_stage.h"
#include "engine/dtype_names.h"
#include "model/families.h"
#include "model/registry.h"
#include "model/sampling_defaults.h"
#include "text/rerank_prompt.h"

namespace quire {
namespace {

Activations parse_activations(const std::string& name, const KernelSet& kernels) {
  if (name == "auto") return kernels.default_activations;
  if (const auto known = find_value(kActivationsNames, name)) return *known;
  throw invalid("--activations {} is not supported; use auto, {}", quote(name), list_names(kActivationsNames));
}

KvType parse_kv_type(const std::string& name, Activations activations) {
  if (name == "auto") return activations == Activations::kF32 ? KvType::kF32 : KvType::kBf16;
  if (const auto known = find_value(kKvTypeNames, name)) return *known;
  throw invalid("--kv-cache-dtype {} is not supported; use auto, {}", quote(name), list_names(kKvTypeNames));
}

template <class T>
void check_range(const char* flag, T value, T low, T high) {
  if (!(value >= low && value <= high))  // NaN, too
    throw invalid("{} must be between {} and {}, not {}", flag, low, high, value);
}

constexpr size_t kMiB = size_t{1} << 20;

// Estimate for requests, streams and logs, in addition to what is allocated once the model is loaded.
constexpr size_t kRequestMemory = 64 * kMiB;

// Rows of logits for prompts whose log-probabilities are requested, in addition to one per sequence.
constexpr int kExtraLogits = 32;
// Drafted rows of a step.
constexpr int kDraftLogits = 64;

// Memory of this process that is not backed by files.
size_t anonymous_memory() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) * 1024;
  }
  return 0;
}

// --memory, or the available memory less a margin for the rest of the machine.
size_t memory_budget(const EngineOptions& options) {
  const size_t available = available_memory();
  if (options.memory_bytes == 0) return available - std::min(available, std::max(256 * kMiB, available / 20));
  if (options.memory_bytes > available)
    throw no_resource("--memory is {} MiB, but only {} MiB are free; lower it", options.memory_bytes / kMiB,
                      available / kMiB);
  return options.memory_bytes;
}

// Increase this when a definition in kernels/kernels.h or the layout of a page changes, to invalidate stored pages.
constexpr int kNumerics = 3;

// Identifies the content of stored pages: a hash of the weights, and the layout and definitions in force by name.
std::string identity_of(const Checkpoint& checkpoint, const ModelConfig& c, const ModelInfo& info,
                        const CacheLayout& layout) {
  XXH3_state_t* const state = XXH3_createState();
  XXH3_128bits_reset(state);
  for (const TensorView& tensor : checkpoint.tensors()) {
    XXH3_128bits_update(state, tensor.name.data(), tensor.name.size());
    XXH3_128bits_update(state, tensor.bytes.data(), tensor.bytes.size());
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  return fmt::format("{:016x}{:016x} numerics {} {} cache {} activations {}", hash.high64, hash.low64, kNumerics,
                     config_identity(c), layout.identity(), info.activations);
}

int checked_threads(int threads) {
  if (threads < 0 || threads > kMaxThreads)
    throw invalid("--threads must be between 0 (all cores) and {}, not {}", kMaxThreads, threads);
  return threads > 0 ? threads : usable_cores();
}

}  // namespace

LoadedModel::LoadedModel(EngineOptions given, int max_logits)
    : options(std::move(given)), team(checked_threads(options.threads)) {
  check_range("--max-num-seqs", options.max_num_seqs, 1, kMaxNumSeqs);
  check_range("--max-num-batched-tokens", options.max_num_batched_tokens, 1, kMaxNumBatchedTokens);
  if (options.max_num_batched_tokens < options.max_num_seqs) {
    throw invalid(
        "--max-num-batched-tokens {} is less than --max-num-seqs {}, so running answers would starve; raise the first "
        "or "
        "lower the second",
        options.max_num_batched_tokens, options.max_num_seqs);
  }
  check_range("--max-model-len", options.max_model_len, 0, std::numeric_limits<int>::max());
  check_range("--tpot-target", options.tpot_target, kMinTpotTarget, kMaxTpotTarget);
  check_range("--ttft-target", options.ttft_target, 0.0, kMaxTtftTarget);
  if (options.scheduler != "continuous" && options.scheduler != "static")
    throw invalid("--scheduler {} is not supported; use continuous or static", quote(options.scheduler));
  const size_t budget = memory_budget(options), before = anonymous_memory();
  const KernelSet& kernels = choose_kernels(options.kernels);
  Activations activations = parse_activations(options.activations, kernels);
  const KvType kv_type = parse_kv_type(options.kv_cache_dtype, activations);

  const Checkpoint checkpoint = Checkpoint::open(resolve_model(options.model));
  config = read_model_config(checkpoint);
  // A model that was made for int8 inputs gets them.
  if (options.activations == "auto" && config.input_forms.int8_rows) activations = Activations::kInt8;
  if (max_logits > 0 && !config.has_logits)
    throw unsupported("{} does not generate text; it can only embed or score it", options.model);
  if (is_bidirectional(config)) {
    options.chunked_prefill = options.prefix_cache = false;
    options.host_cache_bytes = 0;
    options.cache_dir.clear();
  }
  text = load_model_text(checkpoint);
  check_vocabulary(checkpoint, text, config);
  std::string template_name = checkpoint.file() + ": chat template";
  if (!options.chat_template.empty()) {
    text.template_source = options.chat_template;
    template_name = "--chat-template";
  }
  if (!text.rerank_template && config.pooled.score == Score::kYesNo) text.rerank_template = kQwen3RerankPrompt;
  if (text.template_source) chat_template = ChatTemplate::parse(*text.template_source, template_name);
  if (options.max_model_len > config.max_positions)
    throw invalid("--max-model-len is {}, but the model was trained for at most {} tokens", options.max_model_len,
                  config.max_positions);
  weights = load_weights(checkpoint, config, team,
                         {.memory = budget,
                          .pack_cache = options.pack_cache,
                          .warn = [](const std::string& text) { spdlog::warn("{}", text); },
                          .report = options.on_load});
  if (weights.mapped) spdlog::debug("weights: mapped {}", weights.mapped->file.path().string());
  options.on_load = nullptr;  // it may refer to what ends with the caller
  if (DraftStage::check(options)) {
    text_drafters = std::make_unique<TextDrafters>(options, text.tokenizer ? &*text.tokenizer : nullptr);
    draft_model = DraftModel::load(options, config, text, team, budget);
  }

  info.name = options.model;
  info.architecture = config.architecture;
  info.quantization = weights.main_type;
  info.kernels = kernels.name;
  info.activations = name(activations);
  info.kv_cache_dtype = name(kv_type);
  info.threads = team.size();
  info.vocab_size = config.vocab;
  info.layers = static_cast<int>(config.layers.size());
  info.hidden = config.hidden;
  if (const auto attention = first_attention(config)) {
    info.heads = attention->heads;
    info.kv_heads = attention->kv_heads;
    info.head_dim = attention->key_dim;
  }
  info.generates = config.has_logits;
  info.pooling = config.pooled.pooling;
  info.embedding_size = pooled_size(config);
  info.labels = config.pooled.labels;
  info.score = config.pooled.score;
  info.parameters = weights.parameters;
  const SamplingRecommendation sampling = sampling_defaults(checkpoint);
  info.sampling_defaults = sampling.values;
  for (const std::string& warning : sampling.warnings) spdlog::warn("{}", warning);
  info.weight_bytes = weights.matrix_bytes;
  info.decode_bytes = weights.decode_bytes;
  std::vector<const ModelConfig*> drafters;
  if (draft_model && draft_model->layers()) drafters.push_back(draft_model->layers());
  const CacheLayout layout = cache_layout(config, kv_type, drafters);
  if (!options.cache_dir.empty()) {
    cache_identity = identity_of(checkpoint, config, info, layout);
    if (draft_model) cache_identity += draft_model->identity();
  }

  // Without chunked prefill, a step may have a whole prompt in addition to its other rows.
  const int longest = options.max_model_len > 0 ? options.max_model_len : config.max_positions;
  const int rows = options.max_num_batched_tokens + (options.chunked_prefill && options.kv_cache ? 0 : longest);
  const int extra_logits = text_drafters ? kDraftLogits : kExtraLogits;
  DecoderLimits limits{rows, max_logits > 0 ? max_logits : options.max_num_seqs + extra_logits, longest};
  if (draft_model && draft_model->reads() == DraftModel::Reads::kAllRows) limits.max_hidden = limits.max_rows;
  if (draft_model && draft_model->reads() == DraftModel::Reads::kSampledRows) limits.max_hidden = limits.max_logits;
  constexpr size_t kSamplerBytesPerToken = 40;  // of SamplerScratch
  info.activation_bytes = Decoder::memory_bytes(config, limits, team.size()) +
                          static_cast<size_t>(team.size()) * static_cast<size_t>(config.vocab) * kSamplerBytesPerToken;
  const size_t now = anonymous_memory(), loaded = now - std::min(now, before + weights.memory.size());
  info.other_bytes = loaded + kRequestMemory + options.reserved_bytes;
  if (text_drafters) {
    // As many tokens as the cache may come to hold, about.
    const size_t all = static_cast<size_t>(options.max_num_seqs) * static_cast<size_t>(longest),
                 tokens = std::min(all, budget / std::max<size_t>(1, layout.token_bytes()));
    text_drafters->limit(tokens);
    info.other_bytes += text_drafters->memory_bytes(tokens, options.max_num_seqs);
  }
  if (draft_model) info.activation_bytes += draft_model->activation_bytes(config, limits, team.size());
  info.page_store_bytes = PageCache::store_bytes(page_cache_options(options), layout);
  info.memory_bytes = budget;
  const size_t taken = info.weight_bytes + info.activation_bytes + info.other_bytes + info.page_store_bytes;
  if (taken + layout.unit_bytes() > budget) {
    throw no_resource("{} MiB of memory are available, but at least {} MiB are needed{}", budget / kMiB,
                      (taken + layout.unit_bytes()) / kMiB + 1,
                      options.memory_bytes > 0 ? ": raise --memory" : ": free some, or lower --max-num-seqs");
  }
  const CacheSize cache = size_cache(options, layout, config.max_positions, budget - std::min(budget, taken), budget);
  info.max_model_len = cache.max_model_len;
  info.kv_pages = cache.units;
  info.kv_groups = static_cast<int>(layout.groups().size());
  info.kv_states = cache.states;
  info.page_tokens = kPageTokens;
  info.kv_bytes_per_token = layout.token_bytes();
  info.kv_bytes_per_sequence = cache.bytes_per_sequence;
  info.kv_cache_bytes = cache.bytes;
  kv = std::make_unique<CacheMemory>(layout, info.kv_pages, info.kv_states);
  limits.max_positions = info.max_model_len;
  decoder = std::make_unique<Decoder>(config, weights, *kv, Compute{kernels, team, activations}, limits);
  if (draft_model) draft_model->start(config, weights, *kv, decoder->compute(), *decoder, limits);
}

}  // namespace quire
