#include "engine/loaded_model.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/quote.h"
#include "engine/cache/cache_size.h"
#include "engine/cache/page_cache.h"
#include "engine/drafting/draft_stage.h"
#include "engine/dtype_names.h"
#include "engine/tuner.h"
#include "model/families.h"
#include "model/registry.h"
#include "model/sampling_defaults.h"
#include "speculate/mtp.h"
#include "text/named_templates.h"
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

// Estimate for requests and logs, in addition to what is allocated once the model is loaded, unless the program reserves
// more.
constexpr size_t kRequestMemory = 64 * kMiB;

// Rows of logits for prompts whose log-probabilities are requested, in addition to one per sequence.
constexpr int kExtraLogits = 32;

void warn(const std::string& text) { spdlog::warn("{}", text); }

// Throws Error.
void check_options(const EngineOptions& o) {
  check_range("--max-num-seqs", o.max_num_seqs, 1, kMaxNumSeqs);
  check_range("--max-num-batched-tokens", o.max_num_batched_tokens, 1, kMaxNumBatchedTokens);
  if (o.max_num_batched_tokens < o.max_num_seqs) {
    throw invalid(
        "--max-num-batched-tokens {} is less than --max-num-seqs {}, so running answers would starve; raise the first "
        "or lower the second",
        o.max_num_batched_tokens, o.max_num_seqs);
  }
  check_range("--max-model-len", o.max_model_len, 0, std::numeric_limits<int>::max());
  check_range("--tpot-target", o.tpot_target, kMinTpotTarget, kMaxTpotTarget);
  check_range("--ttft-target", o.ttft_target, 0.0, kMaxTtftTarget);
  if (!o.record.empty() && (o.host_cache_bytes > 0 || !o.cache_dir.empty()))
    throw unsupported(
        "--record cannot be combined with --host-cache-size or --cache-dir, whose pages a replay does not have");
  if (o.tune != "off" && o.tune != "auto" && o.tune != "force")
    throw invalid("--tune {} is not supported; use off, auto or force", quote(o.tune));
  if (o.scheduler != "continuous" && o.scheduler != "static")
    throw invalid("--scheduler {} is not supported; use continuous or static", quote(o.scheduler));
}

// Longest sequence that may be asked for, whatever fits into the cache.
int longest_sequence(const EngineOptions& o, const ModelConfig& config) {
  return o.max_model_len > 0 ? o.max_model_len : config.max_positions;
}

}  // namespace

LoadedModel::LoadedModel(EngineOptions given, int max_logits) : options(std::move(given)), runtime(options) {
  check_options(options);
  const size_t memory_before = anonymous_memory();
  Activations activations = parse_activations(options.activations, runtime.kernels);
  const KvType kv_type = parse_kv_type(options.kv_cache_dtype, activations);
  const Checkpoint checkpoint = Checkpoint::open(resolve_model(options.model));
  load(checkpoint);
  const ModelConfig& config = target.config;
  if (max_logits > 0 && !config.has_logits)
    throw unsupported("{} does not generate text; it can only embed or score it", options.model);
  // A model that was made for int8 inputs gets them.
  if (options.activations == "auto" && config.input_forms.int8_rows) activations = Activations::kInt8;
  load_drafters(checkpoint);

  info.activations = name(activations);
  info.kv_cache_dtype = name(kv_type);
  describe(checkpoint);
  std::vector<const ModelConfig*> drafters;
  if (draft_model && draft_model->layers()) drafters.push_back(draft_model->layers());
  const CacheLayout layout = cache_layout(config, kv_type, drafters);
  if (!options.cache_dir.empty() || !options.record.empty())
    identity = model_identity(checkpoint, config, info.activations);
  checkpoint.check_unchanged();
  cache_identity = identity + " cache " + layout.identity();
  if (draft_model) cache_identity += draft_model->identity();
  DecoderLimits limits = size_steps(max_logits);
  size_memory(layout, limits, memory_before);
  kv = std::make_unique<CacheMemory>(layout, info.kv_pages, info.kv_states);
  limits.max_positions = info.max_model_len;
  const Compute compute{runtime.kernels, runtime.team, activations, &runtime.tuning};
  if (options.tune != "off" && !options.tuning_file.empty()) {
    const TuningFile file(options.tuning_file, tuning_machine(runtime), warn);
    tune(compute, runtime.tuning, target, file, options.tune == "force", options.on_load);
  }
  options.on_load = nullptr;  // it may refer to what ends with the caller
  decoder = std::make_unique<Decoder>(config, target.weights, *kv, compute, limits);
  if (draft_model) draft_model->start({config, target.weights, *kv, decoder->compute(), *decoder, limits});
}

void LoadedModel::load(const Checkpoint& checkpoint) {
  if (!options.record.empty() && checkpoint.reads(options.record))
    throw invalid("--record {} is a file of the model itself, which it would overwrite; choose another name",
                  options.record);
  target.config = read_model_config(checkpoint);
  const ModelConfig& config = target.config;
  if (options.max_model_len > config.max_positions)
    throw invalid("--max-model-len is {}, but the model was trained for at most {} tokens", options.max_model_len,
                  config.max_positions);
  if (is_bidirectional(config)) {
    options.chunked_prefill = options.prefix_cache = false;
    options.host_cache_bytes = 0;
    options.cache_dir.clear();
  }
  for (const std::string& warning : config.warnings) warn(warning);
  ModelText& text = target.text;
  text = load_model_text(checkpoint);
  check_vocabulary(checkpoint, text, config);
  if (text.tokenizer) {
    for (const std::string& warning : text.tokenizer->warnings()) warn(warning);
  }
  std::string template_name = checkpoint.file() + ": chat template";
  if (!options.chat_template.empty()) {
    text.template_source = options.chat_template;
    template_name = "--chat-template";
  }
  if (!text.rerank_template && config.pooled.score == Score::kYesNo) text.rerank_template = kQwen3RerankPrompt;
  if (text.template_source) text.template_source = template_or_named(*text.template_source, template_name);
  if (text.template_source) chat_template = ChatTemplate::parse(*text.template_source, template_name);
  target.weights = load_weights(
      checkpoint, config, runtime.team,
      {.memory = runtime.memory, .pack_cache = options.pack_cache, .warn = warn, .report = options.on_load});
  if (target.weights.mapped) spdlog::debug("weights: mapped {}", target.weights.mapped->file.path().string());
}

void LoadedModel::load_drafters(const Checkpoint& checkpoint) {
  NamedDrafters drafters = named_drafters(options, has_predicting_layer(checkpoint, target.config));
  if (!drafters.any()) return;
  const Tokenizer* const tokenizer = target.text.tokenizer ? &*target.text.tokenizer : nullptr;
  text_drafters = std::make_unique<TextDrafters>(std::move(drafters.texts), options, tokenizer);
  if (!drafters.model) return;
  try {
    draft_model = DraftModel::load(*drafters.model, options, checkpoint, target, runtime);
  } catch (const Error& e) {
    // Nobody has asked for this drafter by name.
    if (options.speculative != "auto" || drafters.model != DrafterKind::kMtp) throw;
    spdlog::warn("--speculative auto: {}; answers go on without multi-token prediction", e.what());
  }
}

// What `info` says of the model itself.
void LoadedModel::describe(const Checkpoint& checkpoint) {
  const ModelConfig& config = target.config;
  const Weights& weights = target.weights;
  info.name = options.model;
  info.architecture = config.architecture;
  info.quantization = weights.main_type;
  info.kernels = runtime.kernels.name;
  info.threads = runtime.team.size();
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
  info.weight_bytes = weights.matrix_bytes;
  info.decode_bytes = weights.decode_bytes;
  const SamplingRecommendation sampling = sampling_defaults(checkpoint);
  info.sampling_defaults = sampling.values;
  for (const std::string& warning : sampling.warnings) spdlog::warn("{}", warning);
}

DecoderLimits LoadedModel::size_steps(int max_logits) const {
  // Without chunked prefill, a step may have a whole prompt in addition to its other rows.
  const int longest = longest_sequence(options, target.config);
  const int rows = options.max_num_batched_tokens + (options.chunked_prefill && options.kv_cache ? 0 : longest);
  const int extra_logits = text_drafters ? DraftStage::kMostRows : kExtraLogits;
  DecoderLimits limits{rows, max_logits > 0 ? max_logits : options.max_num_seqs + extra_logits, longest};
  if (text_drafters) limits.max_drafted = DraftStage::kMostRows;
  if (draft_model && draft_model->reads() == DraftModel::Reads::kAllRows) limits.max_hidden = limits.max_rows;
  if (draft_model && draft_model->reads() == DraftModel::Reads::kSampledRows) limits.max_hidden = limits.max_logits;
  return limits;
}

// Gives the KV cache the memory that everything else leaves. Throws Error if there is none left.
void LoadedModel::size_memory(const CacheLayout& layout, const DecoderLimits& limits, size_t memory_before) {
  const ModelConfig& config = target.config;
  const size_t budget = runtime.memory;
  const int threads = runtime.team.size();
  info.activation_bytes = Decoder::memory_bytes(config, limits, threads) + static_cast<size_t>(threads) *
                                                                               static_cast<size_t>(config.vocab) *
                                                                               SamplerScratch::kBytesPerToken;
  const size_t now = anonymous_memory(), loaded = now - std::min(now, memory_before + target.weights.memory.size());
  info.other_bytes = loaded + std::max(kRequestMemory, options.reserved_bytes);
  if (text_drafters) {
    // As many tokens as the cache may come to hold, about.
    const size_t all =
        static_cast<size_t>(options.max_num_seqs) * static_cast<size_t>(longest_sequence(options, config));
    const size_t tokens = std::min(all, budget / std::max<size_t>(1, layout.token_bytes()));
    text_drafters->limit(tokens);
    info.other_bytes += text_drafters->memory_bytes(tokens, options.max_num_seqs);
  }
  if (draft_model) info.activation_bytes += draft_model->activation_bytes(config, limits, threads);
  info.activation_bytes += DraftStage::memory_bytes(options, draft_model.get(), config.vocab, threads);
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
}

}  // namespace quire
