#include "engine/memory_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text/quote.h"
#include "engine/cache/page_cache.h"
#include "engine/device.h"
#include "engine/drafting/draft_stage.h"
#include "engine/drafting/text_drafters.h"
#include "engine/dtype_names.h"
#include "engine/ranks/cpu_experts.h"
#include "engine/ranks/device_ranks.h"
#include "engine/ranks/gpu_layers.h"
#include "engine/ranks/rank_group.h"
#include "engine/ranks/rank_parts.h"
#include "engine/step/local_executor.h"
#include "engine/trace/engine_trace.h"
#include "model/adapter/adapter_files.h"
#include "model/checkpoint.h"
#include "model/families.h"
#include "model/registry.h"
#include "model/stages/cut_layers.h"
#include "ops/cache_memory.h"
#include "ops/cpu/cpu_backend.h"
#include "ops/offload/host_experts.h"
#include "ops/process_ranks.h"
#include "sampling/sampler.h"

namespace quire {
namespace {

// For requests and logs, on top of what loading allocates. A program may reserve more.
constexpr size_t kRequestMemory = 64 * kMiB;

// Rows of logits for prompts whose log-probabilities are requested, in addition to one per sequence.
constexpr int kExtraLogits = 32;

// Tokenizer, chat template and what reading them leaves in the heap. Measured: 9 to 12 MB for 32,000 to 50,000 tokens
// (SmolLM2 as a GGUF file; GPT-2, Llama 2, Mistral and SmolLM2 as a tokenizer.json). The estimate is 1.7 to 3 times that.
constexpr size_t kVocabularyBytes = 8 * kMiB, kVocabularyBytesPerToken = 384;

// Of the corpus's file: a token has 8 bytes in memory, and at least 2 in most texts.
constexpr size_t kCorpusBytesPerFileByte = 4;

Activations parse_activations(const std::string& name, Activations usual) {
  if (name == "auto") return usual;
  if (const auto known = find_value(kActivationsNames, name)) return *known;
  throw invalid("--activations {} is not supported; use auto, {}", quote(name), list_names(kActivationsNames));
}

KvType parse_kv_type(const std::string& name, Activations activations) {
  if (name == "auto") return activations == Activations::kF32 ? KvType::kF32 : KvType::kBf16;
  if (const auto known = find_value(kKvTypeNames, name)) return *known;
  throw invalid("--kv-cache-dtype {} is not supported; use auto, {}", quote(name), list_names(kKvTypeNames));
}

// Longest sequence that may be asked for, whatever fits into the cache.
int longest_sequence(const EngineOptions& o, const ModelConfig& config) {
  return o.max_model_len > 0 ? o.max_model_len : config.max_positions;
}

DecoderLimits step_limits(const DrafterFacts& drafters, const ModelConfig& config, const EngineOptions& o,
                          int max_logits) {
  // Without chunked prefill, a step may have a whole prompt in addition to its other rows.
  const int longest = longest_sequence(o, config);
  const int rows = o.max_num_batched_tokens + (o.chunked_prefill && o.kv_cache ? 0 : longest);
  const bool drafts = drafters.named.any();
  const int extra_logits = drafts ? DraftStage::kMostRows : kExtraLogits;
  DecoderLimits limits{rows, max_logits > 0 ? max_logits : o.max_num_seqs + extra_logits, longest};
  if (drafts) limits.max_drafted = DraftStage::kMostRows;
  if (!drafters.named.model) return limits;
  const DraftModel::Reads reads = DraftModel::reads_of(*drafters.named.model);
  if (reads == DraftModel::Reads::kAllRows) limits.max_hidden = limits.max_rows;
  if (reads == DraftModel::Reads::kSampledRows) limits.max_hidden = limits.max_logits;
  return limits;
}

OperationsBytes operations_of_machine(const Machine& machine) {
  return machine.operations_bytes ? machine.operations_bytes : CpuBackend::operations_bytes_with(machine.threads);
}

// Whose operations also exchange what they compute, if devices are ranks.
Machine rank_machine(Machine machine, const MemoryPlan& plan) {
  if (plan.devices == 1) return machine;
  machine.operations_bytes = [usual = machine.operations_bytes, ranks = plan.devices](OperationLimits limits) {
    limits.ranks = ranks;
    return usual(limits);
  };
  return machine;
}

// Of the target model.
Machine target_machine(Machine machine, const ModelConfig& config, const MemoryPlan& plan) {
  machine = rank_machine(std::move(machine), plan);
  const int cpu_moe_layers = plan.cpu_moe_layers;
  if (cpu_moe_layers == 0) return machine;
  machine.operations_bytes = [usual = operations_of_machine(machine),
                              all = !device_has_experts(config, cpu_moe_layers)](const OperationLimits& limits) {
    return usual(HostExpertsBackend::on_device(limits, all));
  };
  return machine;
}

// The sum over the ranks of what each allocates for its operations and by them: bytes_with(OperationsBytes).
template <class BytesWith>
size_t sum_over_ranks(const Machine& machine, int ranks, BytesWith bytes_with) {
  if (ranks == 1) return bytes_with(operations_of_machine(machine));
  size_t sum = 0;
  for (int rank = 0; rank < ranks; ++rank)
    sum += bytes_with(CpuBackend::operations_bytes_with(threads_of_rank(rank, ranks, machine.threads)));
  return sum;
}

// Throws Error.
void check_ranks(const ModelFacts& facts, const EngineOptions& o, const Machine& machine) {
  if (o.tensor_parallel_size < 1 || o.tensor_parallel_size > kMaxRanks)
    throw invalid("--tensor-parallel-size must be between 1 and {}, not {}", kMaxRanks, o.tensor_parallel_size);
  if (o.tensor_parallel_size > 1 && machine.own_memory) check_device_ranks(facts, o);
}

// Throws Error.
void check_stages(const ModelFacts& facts, const EngineOptions& o) {
  const int stages = o.pipeline_parallel_size;
  if (stages < 1 || stages > kMaxRanks)
    throw invalid("--pipeline-parallel-size must be between 1 and {}, not {}", kMaxRanks, stages);
  if (o.micro_batch_rows < 1) throw invalid("--micro-batch-rows must be at least 1, not {}", o.micro_batch_rows);
  if (stages == 1) return;
  const auto refuse = [&](const std::string& why) { throw unsupported("--pipeline-parallel-size {} {}", stages, why); };
  if (o.tensor_parallel_size > 1)
    refuse(fmt::format("cannot be combined with --tensor-parallel-size {}; give one of them", o.tensor_parallel_size));
  if (uses_device(o)) refuse(fmt::format("works on the processor only; leave out --device {}", o.device));
  if (facts.drafters.named.model == DrafterKind::kEarlyExit)
    refuse(
        "cannot be combined with --speculative early-exit, whose layers and output are in different stages; use "
        "another "
        "drafter");
}

// Micro-batches of a step for each stage. The first and the last ones leave stages without work: of the time of n stages and m
// micro-batches a part of (n - 1) / (m + n - 1), which is a fifth for four (GPipe: arXiv 1811.06965).
constexpr int kMicroBatchesPerStage = 4;

// The layers of each stage; none: there are no stages.
std::vector<LayerRange> stages_of(const ModelFacts& facts, const EngineOptions& o, int gpu_layers) {
  const auto layers = static_cast<int>(facts.config.layers.size());
  if (const int on_cpu = layers - gpu_layers; gpu_layers > 0 && on_cpu > 0) return {{0, on_cpu}, {on_cpu, layers}};
  if (o.pipeline_parallel_size == 1) return {};
  return cut_layers(facts.config, facts.weights, o.pipeline_parallel_size);
}

void plan_stages(const ModelFacts& facts, const EngineOptions& o, MemoryPlan& plan) {
  const ModelConfig& config = facts.config;
  const std::vector<LayerRange> layers = stages_of(facts, o, plan.gpu_layers);
  if (layers.empty()) return;
  for (const LayerRange& own : layers) {
    const int width = is_last(config, own) ? 0 : border_width(config, own.end);
    plan.stages.push_back({.layers = own,
                           .weights = stage_bytes(config, facts.weights, own),
                           .sent_bytes = static_cast<size_t>(width) * sizeof(float)});
  }
  plan.stages.back().weights -= cpu_expert_bytes(facts, plan);
  const auto drafter = facts.drafters.named.model;
  plan.drafter_embedding = drafter && DraftModel::reads_of(*drafter) == DraftModel::Reads::kAllRows;
  plan.micro_batches = {.most = kMicroBatchesPerStage * static_cast<int>(layers.size()),
                        .least_rows = o.micro_batch_rows,
                        .whole_spans = is_bidirectional(config)};
}

// Of the matrices that a stage loads for itself alone.
size_t own_stage_weights(const ModelFacts& facts, const MemoryPlan& plan, int stage) {
  const size_t own = plan.stages[static_cast<size_t>(stage)].weights;
  const bool last = std::cmp_equal(stage + 1, plan.stages.size());
  const bool adds_embedding = plan.drafter_embedding && last && !facts.config.tied_output;
  return own + (adds_embedding ? facts.weights.embedding_bytes : 0);
}

// What the stages of this process allocate for a step, and to send rows; next to a CPU, the device's stage.
size_t stage_activations(const ModelFacts& facts, const Machine& machine, const MemoryPlan& plan) {
  const ModelConfig& config = facts.config;
  const auto stages = static_cast<int>(plan.stages.size());
  const auto of_stage = [&](int stage, const OperationsBytes& operations) {
    const bool last = stage == stages - 1;
    return LocalExecutor::memory_bytes(config, stage_limits(plan.limits, last), operations);
  };
  if (plan.shares_layers()) return of_stage(stages - 1, operations_of_machine(target_machine(machine, config, plan)));
  size_t widest = 0, borders = 0, bytes = 0;
  for (const StagePlan& stage : plan.stages) {
    widest = std::max(widest, stage.sent_bytes);
    borders += stage.sent_bytes;
  }
  const auto rows = static_cast<size_t>(plan.limits.max_rows);
  if (machine.one_rank) {
    // Logits go to rank 0 as a message, of which they are a copy.
    const size_t logits = static_cast<size_t>(plan.limits.max_logits) * static_cast<size_t>(config.vocab);
    return of_stage(machine.rank, operations_of_machine(machine)) + widest * rows + 2 * logits * sizeof(float);
  }
  for (int stage = 0; stage < stages; ++stage)
    bytes += of_stage(stage, CpuBackend::operations_bytes_with(threads_of_rank(stage, stages, machine.threads)));
  return bytes + borders * rows;
}

void plan_drafters(const ModelFacts& facts, const EngineOptions& o, const Machine& machine, MemoryPlan& plan) {
  const DrafterFacts& drafters = facts.drafters;
  if (!drafters.named.any()) return;
  // As many tokens as the cache may come to hold, about.
  const size_t all = static_cast<size_t>(o.max_num_seqs) * static_cast<size_t>(longest_sequence(o, facts.config));
  plan.drafted_tokens = std::min(all, machine.memory / std::max<size_t>(1, plan.layout.token_bytes()));
  Machine drafting = machine;  // the last stage's, if there are several
  if (const auto stages = static_cast<int>(plan.stages.size());
      stages > 0 && !machine.one_rank && !plan.shares_layers())
    drafting.operations_bytes = CpuBackend::operations_bytes_with(threads_of_rank(stages - 1, stages, machine.threads));
  const size_t corpus = static_cast<size_t>(drafters.corpus_bytes) * kCorpusBytesPerFileByte;
  plan.loaded += corpus + drafters.weight_bytes + TextDrafters::memory_bytes(drafters.named.texts, 0, 0);
  plan.drafters = TextDrafters::memory_bytes(drafters.named.texts, plan.drafted_tokens, o.max_num_seqs) + corpus +
                  draft_weight_bytes(drafters, o, facts.config) +
                  sum_over_ranks(drafting, plan.ranks,
                                 [&](const OperationsBytes& operations) {
                                   return draft_network_bytes(drafters, facts.config, plan.limits, operations);
                                 }) +
                  DraftStage::memory_bytes(o, drafters.named.model.has_value(), facts.config.vocab, machine.threads);
}

// Without --max-model-len, experts leave room for a sequence of so many tokens, or the model's longest.
constexpr int kLeastContext = 4096;

// Decides how many experts are in memory at a time. Returns what the cache may have of the memory that is left.
// layout: the cache of all ranks.
size_t plan_experts(const ModelFacts& facts, const EngineOptions& o, const Machine& machine, const CacheLayout& layout,
                    MemoryPlan& plan) {
  const ExpertTotals& experts = facts.weights.experts;
  const auto left = [&] { return plan.budget - std::min(plan.budget, plan.without_cache()); };
  if (o.expert_bytes == kAllExperts) return left();
  const bool is_given = o.expert_bytes > 0;
  if (experts.experts == 0 && is_given)
    throw invalid("--expert-memory is a size, but {} has no experts; leave it out", o.model);
  if (experts.experts == 0) return left();
  if (!machine.reads_experts && is_given)
    throw unsupported("--expert-memory is a size, but --device {} needs all experts in its memory; leave it out",
                      o.device);
  if (o.tensor_parallel_size > 1 && is_given)
    throw unsupported("--expert-memory is a size, but ranks (--tensor-parallel-size {}) need all experts in memory",
                      o.tensor_parallel_size);
  if (o.pipeline_parallel_size > 1 && is_given)
    throw unsupported("--expert-memory is a size, but stages (--pipeline-parallel-size {}) need all experts in memory",
                      o.pipeline_parallel_size);
  const bool reads_experts = machine.reads_experts && o.tensor_parallel_size == 1 && o.pipeline_parallel_size == 1;
  const int positions = facts.config.max_positions;
  const size_t one = o.kv_cache_bytes > 0  ? o.kv_cache_bytes
                     : o.max_model_len > 0 ? least_cache_bytes(o, layout, o.max_model_len)
                                           : least_cache_bytes(o, layout, std::min(positions, kLeastContext));
  if (!reads_experts || (!is_given && plan.without_cache() + one <= plan.budget)) return left();
  const auto count = static_cast<size_t>(experts.experts);
  const size_t least = static_cast<size_t>(experts.used) * experts.slot_bytes;
  if (is_given && o.expert_bytes < least)
    throw no_resource(
        "--expert-memory is {} bytes, but the {} experts that a token chooses in a layer need {}; raise it",
        o.expert_bytes, experts.used, least);
  plan.weights -= experts.bytes;
  plan.all_experts = experts.experts;
  const auto set_slots = [&](size_t slots) {
    plan.expert_slots = static_cast<int>(std::min(slots, count));
    plan.experts = static_cast<size_t>(plan.expert_slots) * experts.slot_bytes;
  };
  if (is_given) {
    set_slots(o.expert_bytes / experts.slot_bytes);
    return left();
  }
  set_slots(static_cast<size_t>(experts.used));
  const size_t spare = left() + plan.experts, cache_memory = std::min(left(), std::max(spare / 4, one));
  if (cache_memory < layout.unit_bytes()) return cache_memory;
  const size_t cache = size_cache(o, layout, positions, cache_memory, plan.budget).bytes;
  set_slots(std::max((spare - cache) / experts.slot_bytes, static_cast<size_t>(experts.used)));
  return std::min(left(), cache_memory);
}

[[noreturn]] void refuse_plan(const MemoryPlan& plan, const EngineOptions& o, size_t least) {
  const auto mib = [](size_t bytes) { return (bytes + kMiB - 1) / kMiB; };
  std::vector<std::string> parts;
  for (const MemoryRow& row : plan.rows()) {
    if (row.bytes > 0) parts.push_back(fmt::format("{} {}", row.what, mib(row.bytes)));
  }
  throw no_resource("{} MiB of memory are available, but {} needs at least {} MiB ({}): {}", plan.budget / kMiB,
                    o.model, mib(least), fmt::join(parts, ", "),
                    plan.own_memory              ? "choose weights of fewer bits, or lower --max-num-seqs"
                    : plan.weights > plan.budget ? "choose a smaller model or weights of fewer bits, or raise --memory"
                    : o.memory_bytes > 0         ? "raise --memory, or lower --max-num-seqs"
                                                 : "free some, or lower --max-num-seqs");
}

}  // namespace

ModelFacts read_model_facts(const Checkpoint& checkpoint, const EngineOptions& options) {
  ModelFacts facts;
  facts.config = read_model_config(checkpoint);
  facts.weights = check_weights(checkpoint, facts.config);
  facts.drafters = read_drafter_facts(options, checkpoint, facts.config, facts.weights.output);
  if (options.tensor_parallel_size > 1 && uses_device(options))
    facts.rank_bytes = largest_rank_bytes(checkpoint, facts.config, options.tensor_parallel_size);
  for (const AdapterOption& adapter : options.adapters) {
    const AdapterFacts one = check_adapter(AdapterFiles::open(adapter.path), checkpoint, facts.config);
    facts.adapters.rank = std::max(facts.adapters.rank, one.rank);
    facts.adapters.bytes += one.bytes;
  }
  if (!options.control_vectors.empty()) facts.control_vectors = read_control_vectors(options, facts.config).bytes();
  return facts;
}

ModelFacts read_model_facts(const EngineOptions& options) {
  return read_model_facts(Checkpoint::open(resolve_model(options.model)), options);
}

EngineOptions options_for(EngineOptions o, const ModelConfig& config) {
  if (is_bidirectional(config)) {
    o.chunked_prefill = o.prefix_cache = false;
    o.host_cache_bytes = 0;
    o.cache_dir.clear();
    o.shared_cache.clear();
  }
  return o;
}

ControlVectors read_control_vectors(const EngineOptions& options, const ModelConfig& config) {
  ControlVectors vectors(config, options.control_first_layer, options.control_last_layer);
  for (const ControlVectorOption& one : options.control_vectors) vectors.add(one.path, static_cast<float>(one.scale));
  return vectors;
}

bool loads_adapters(const EngineOptions& options) { return options.adapter_bytes > 0 || options.max_adapters > 0; }

size_t sampling_bytes(int threads, int vocab) {
  return static_cast<size_t>(threads) * static_cast<size_t>(vocab) * SamplerScratch::kBytesPerToken;
}

namespace {

// plan_memory(), with options_for() this model and a number of layers for the device.
MemoryPlan plan_for_layers(const ModelFacts& facts, const EngineOptions& o, const Machine& machine, int max_logits) {
  const ModelConfig& config = facts.config;
  if (o.max_model_len > config.max_positions)
    throw invalid("--max-model-len is {}, but the model was trained for at most {} tokens", o.max_model_len,
                  config.max_positions);
  check_ranks(facts, o, machine);
  check_stages(facts, o);
  MemoryPlan plan;
  plan.cpu_moe_layers = layers_with_cpu_experts(facts, o, machine);
  plan.gpu_layers = layers_of_device(facts, o, machine);
  plan.devices = machine.own_memory ? o.tensor_parallel_size : 1;
  plan.ranks = machine.one_rank || plan.devices > 1 ? 1 : o.tensor_parallel_size;
  plan.budget = machine.memory;
  plan.own_memory = machine.own_memory;
  plan.weight_type = facts.weights.main_type;
  plan.activation_type = parse_activations(o.activations, machine.activations);
  const KvType kv_type = parse_kv_type(o.kv_cache_dtype, plan.activation_type);
  // A model that was made for int8 inputs gets them.
  const bool int8_inputs = o.activations == "auto" && config.input_forms.int8_rows;
  if (int8_inputs) plan.activation_type = Activations::kInt8;
  std::vector<const ModelConfig*> further;
  if (facts.drafters.named.model && facts.drafters.layers) further.push_back(&*facts.drafters.layers);
  plan.layout = cache_layout(config, kv_type, further);
  plan.limits = step_limits(facts.drafters, config, o, max_logits);
  plan.limits.max_rank = std::max(facts.adapters.rank, loads_adapters(o) ? o.max_adapter_rank : 0);

  plan_stages(facts, o, plan);
  if (plan.gpu_layers > 0 && (!plan.stages.empty() || plan.cpu_moe_layers > 0)) {
    plan.host.emplace();
    plan.host->activation_type =
        int8_inputs ? Activations::kInt8 : parse_activations(o.activations, machine.host_activations);
  }
  plan.weights = facts.weights.bytes;
  if (plan.devices > 1) plan.weights = facts.weights.bytes - facts.weights.matrix_bytes + facts.rank_bytes;
  const bool shares_layers = plan.shares_layers();
  const int own_stage = shares_layers ? 1 : machine.rank;
  const bool has_stage = shares_layers || (machine.one_rank && !plan.stages.empty());
  plan.weights -= has_stage ? facts.weights.matrix_bytes - own_stage_weights(facts, plan, own_stage)
                            : cpu_expert_bytes(facts, plan);
  if (!plan.host) plan.activations = sampling_bytes(machine.threads, config.vocab);
  plan.activations += plan.stages.empty()
                          ? sum_over_ranks(target_machine(machine, config, plan), plan.ranks,
                                           [&](const OperationsBytes& operations) {
                                             return LocalExecutor::memory_bytes(config, plan.limits, operations);
                                           })
                          : stage_activations(facts, machine, plan);
  plan.page_store = SharedPages::store_bytes(page_cache_options(o), plan.layout);
  plan.vocabulary = kVocabularyBytes + static_cast<size_t>(config.vocab) * kVocabularyBytesPerToken;
  plan.requests = std::max(kRequestMemory, o.reserved_bytes) + (o.trace_out.empty() ? 0 : EngineTrace::kMemoryBytes);
  plan.unplanned = facts.unplanned;
  plan.adapters = facts.adapters.bytes + o.adapter_bytes;
  if (o.max_adapters > 0)
    plan.adapters += static_cast<size_t>(o.max_adapters) * largest_adapter_bytes(config, o.max_adapter_rank);
  const size_t stages_here = machine.one_rank || shares_layers ? 1 : plan.stages.size();
  plan.control_vectors = facts.control_vectors * std::max(static_cast<size_t>(plan.ranks), stages_here);
  plan.loaded = facts.weights.bytes - facts.weights.matrix_bytes + plan.vocabulary;
  plan_drafters(facts, o, rank_machine(machine, plan), plan);
  if (machine.one_rank && plan.stages.empty()) plan.activations += 2 * ProcessRanks::kBlockBytes;
  plan.cached = machine.one_rank || plan.devices > 1 ? plan.layout.of_largest_rank(o.tensor_parallel_size)
                                                     : plan.layout.of_all_ranks(plan.ranks);
  std::vector<CacheLayout> stage_caches;
  if (!plan.stages.empty()) {
    stage_caches = stage_layouts(plan.layout, plan.stage_layers());
    plan.cached = has_stage ? stage_caches[static_cast<size_t>(own_stage)] : plan.layout.of_parts(stage_caches);
  }
  const size_t cache_memory = plan_experts(facts, o, machine, plan.cached, plan);
  const size_t taken = plan.without_cache();
  if (taken + plan.cached.unit_bytes() > plan.budget) refuse_plan(plan, o, taken + plan.cached.unit_bytes());
  if (shares_layers) {
    plan_host(facts, o, machine, stage_caches, cache_memory, plan);
  } else {
    if (plan.cpu_moe_layers > 0) plan_cpu_experts(facts, o, machine, plan);
    plan.cache = size_cache(o, plan.cached, config.max_positions, cache_memory, plan.budget);
  }
  plan.limits.max_positions = plan.cache.max_model_len;
  for (size_t stage = 0; stage < plan.stages.size(); ++stage)
    plan.stages[stage].cache = static_cast<size_t>(plan.cache.units) * stage_caches[stage].unit_bytes() +
                               static_cast<size_t>(plan.cache.states) * stage_caches[stage].state_bytes();
  if (shares_layers) {
    plan.host->cache = plan.stages[0].cache;
    plan.cache.bytes = plan.stages[1].cache;
  }
  return plan;
}

// What find(options, fits) finds if fits() says whether there is room for a sequence of kLeastContext tokens with what it has made
// of the options; if it finds 0, what it finds if any sequence will do.
template <class Find>
int find_fitting(const ModelFacts& facts, const EngineOptions& options, const Machine& machine, int max_logits,
                 const Find& find) {
  EngineOptions o = options;
  const auto fits = [&] {
    try {
      plan_for_layers(facts, o, machine, max_logits);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  if (o.max_model_len == 0) o.max_model_len = std::min(facts.config.max_positions, kLeastContext);
  if (const int found = find(o, fits); found > 0) return found;
  o.max_model_len = options.max_model_len;
  return find(o, fits);
}

// The most layers of the device that fit; 0: the model does not.
int most_gpu_layers(const ModelFacts& facts, const EngineOptions& options, const Machine& machine, int max_logits) {
  return find_fitting(facts, options, machine, max_logits, [&](EngineOptions& o, const auto& fits) {
    return most_layers_of_device(facts.config, [&](int layers) {
      o.gpu_layers = layers;
      return fits();
    });
  });
}

// The fewest layers with experts on the CPU that fit; 0: the model does not.
int fewest_cpu_moe_layers(const ModelFacts& facts, const EngineOptions& options, const Machine& machine,
                          int max_logits) {
  return find_fitting(facts, options, machine, max_logits, [&](EngineOptions& o, const auto& fits) {
    return fewest_layers_with_cpu_experts(facts, [&](int layers) {
      o.cpu_moe_layers = layers;
      return fits();
    });
  });
}

// Ways for the CPU to have a part of a model that does not fit: what follows the error's message.
std::string parts_that_fit(const ModelFacts& facts, const EngineOptions& o, const Machine& machine, int max_logits,
                           bool has_tried_layers) {
  std::string text;
  const auto all = static_cast<int>(facts.config.layers.size());
  const int layers = has_tried_layers ? 0 : most_gpu_layers(facts, o, machine, max_logits);
  if (layers == all) return "; --gpu-layers all fits";
  if (layers > 0)
    text = fmt::format("; --gpu-layers {} fits, the CPU then computes {} of {} layers", layers, all - layers, all);
  if (const int experts = fewest_cpu_moe_layers(facts, o, machine, max_logits); experts > 0)
    text += fmt::format("; --n-cpu-moe {} fits, the CPU then computes the experts of {} of {} layers", experts, experts,
                        all);
  return text;
}

}  // namespace

MemoryPlan plan_memory(const ModelFacts& facts, const EngineOptions& options, const Machine& machine, int max_logits) {
  EngineOptions o = options_for(options, facts.config);
  const bool chooses = o.gpu_layers == kAutoGpuLayers && machine.own_memory;
  if (chooses) {
    const int layers = most_gpu_layers(facts, o, machine, max_logits);
    o.gpu_layers = layers > 0 ? layers : kAllGpuLayers;
  }
  try {
    return plan_for_layers(facts, o, machine, max_logits);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kResource || !machine.own_memory) throw;
    const std::string remedies = parts_that_fit(facts, o, machine, max_logits, chooses);
    if (remedies.empty()) throw;
    throw no_resource("{}{}", e.what(), remedies);
  }
}

std::vector<LayerRange> MemoryPlan::stage_layers() const {
  std::vector<LayerRange> layers;
  for (const StagePlan& stage : stages) layers.push_back(stage.layers);
  return layers;
}

std::vector<MemoryRow> MemoryPlan::rows() const {
  std::vector<MemoryRow> all{{"weights", weights, weight_type}};
  if (expert_slots > 0)
    all.push_back({"experts", experts,
                   fmt::format("{} of {} at a time, the others are read from a file (--expert-memory)", expert_slots,
                               all_experts)});
  if (cache.max_model_len > 0) {
    const size_t longest = cached.sequence_bytes(cache.max_model_len);
    const std::string tokens = layout.groups().size() == 1 && cache.states == 0
                                   ? fmt::format("{} tokens, ", int64_t{cache.units} * kPageTokens)
                                   : "";
    all.push_back({"KV cache", cache.bytes,
                   fmt::format("reserved, not used yet: {}{} sequences of {} (--kv-cache-size)", tokens,
                               cache.bytes / std::max<size_t>(1, longest), cache.max_model_len)});
  }
  all.push_back({"activations", activations, "including logits and sampling"});
  if (adapters > 0) all.push_back({"adapters", adapters, "LoRA (--lora, --lora-memory, --max-loras)"});
  if (control_vectors > 0) all.push_back({"control vectors", control_vectors, "--control-vector"});
  if (drafters > 0) all.push_back({"drafters", drafters, "weights, activations, texts"});
  if (own_memory) return all;
  if (page_store > 0) all.push_back({"page store", page_store, "pages evicted from the KV cache"});
  all.push_back({"other", vocabulary + requests + unplanned, "vocabulary, requests, streams, logs"});
  return all;
}

}  // namespace quire
