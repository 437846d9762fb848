#include "engine/loaded_model.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "base/error.h"
#include "base/files/checksum.h"
#include "base/files/mapped_file.h"
#include "base/text/quote.h"
#include "engine/cache/shared_tier.h"
#include "engine/dtype_names.h"
#include "engine/ranks/agreement.h"
#include "engine/ranks/cpu_experts.h"
#include "engine/tuner.h"
#include "model/adapter/adapter_files.h"
#include "model/packing/expert_store.h"
#include "model/registry.h"
#include "model/sampling_defaults.h"
#include "model/stages/cut_layers.h"
#include "text/rerank_prompt.h"

namespace quire {
namespace {

template <class T>
void check_range(const char* flag, T value, T low, T high) {
  if (!(value >= low && value <= high))  // NaN, too
    throw invalid("{} must be between {} and {}, not {}", flag, low, high, value);
}

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
  if (o.numa != "auto" && o.numa != "off") throw invalid("--numa must be auto or off, not {}", quote(o.numa));
  check_range("--max-model-len", o.max_model_len, 0, std::numeric_limits<int>::max());
  check_range("--tpot-target", o.tpot_target, kMinTpotTarget, kMaxTpotTarget);
  check_range("--ttft-target", o.ttft_target, 0.0, kMaxTtftTarget);
  if (!o.record.empty() && (o.host_cache_bytes > 0 || !o.cache_dir.empty() || !o.shared_cache.empty()))
    throw unsupported(
        "--record cannot be combined with --host-cache-size, --cache-dir or --shared-cache: a replay has no such "
        "pages");
  if (!o.shared_cache.empty()) parse_shared_cache(o.shared_cache);
  if (!o.shared_cache.empty() && !o.cache_dir.empty())
    throw unsupported("--shared-cache takes the place of --cache-dir; give only one of them");
  if (!o.record.empty() && (!o.adapters.empty() || loads_adapters(o)))
    throw unsupported(
        "--record cannot be combined with --lora, --lora-memory or --max-loras, because a replay has no adapters");
  if (!o.record.empty() && !o.control_vectors.empty())
    throw unsupported("--record cannot be combined with --control-vector, because a replay has none");
  check_range("--max-lora-rank", o.max_adapter_rank, 1, kMaxAdapterRank);
  check_range("--max-loras", o.max_adapters, 0, kMaxAdapters);
}

// The environment can ask for ranks, to run all tests with them.
void take_ranks_for_tests(EngineOptions& o, const Runtime& runtime) {
  const char* const ranks = std::getenv("QUIRE_RANKS");
  if (ranks && o.tensor_parallel_size == 1 && o.pipeline_parallel_size == 1 && !o.processes && !runtime.device)
    o.tensor_parallel_size = std::atoi(ranks);
}

// A shared runtime has its threads and kernels already. Throws Error.
void check_shared(const EngineOptions& o, Runtime& runtime) {
  if (o.threads != 0 && o.threads != runtime.team.size())
    throw invalid("threads is {}, but the shared runtime has {}; leave it 0", o.threads, runtime.team.size());
  if (o.kernels != "auto" && o.kernels != runtime.cpu.name())
    throw invalid("kernels is {}, but the shared runtime has {}; leave it auto", quote(o.kernels), runtime.cpu.name());
  if (o.processes && o.tensor_parallel_size * o.pipeline_parallel_size != o.processes->ranks())
    throw invalid(
        "--tensor-parallel-size is {} and --pipeline-parallel-size {}, but {} processes compute; leave out one",
        o.tensor_parallel_size, o.pipeline_parallel_size, o.processes->ranks());
  if (!runtime.device) return;
  if (o.processes)
    throw unsupported("processes (--ranks mpi) compute on the processor only, but {} computes; leave out --device",
                      runtime.device->name());
  if (const size_t devices = runtime.devices().size(); std::cmp_not_equal(o.tensor_parallel_size, devices))
    throw unsupported("--tensor-parallel-size is {}, but {} {} device{} compute{}; they must be as many",
                      o.tensor_parallel_size, devices, runtime.device->name(), devices == 1 ? "" : "s",
                      devices == 1 ? "s" : "");
  if (o.pipeline_parallel_size > 1)
    throw unsupported("--pipeline-parallel-size {} works on the processor only, but {} computes",
                      o.pipeline_parallel_size, runtime.device->name());
}

}  // namespace

LoadedModel::LoadedModel(EngineOptions given, int max_logits, std::shared_ptr<Runtime> shared)
    : options(std::move(given)),
      runtime_owner(shared ? std::move(shared) : std::make_shared<Runtime>(options)),
      runtime(*runtime_owner) {
  check_options(options);
  take_ranks_for_tests(options, runtime);
  check_shared(options, runtime);
  const size_t memory_before = anonymous_memory();
  const Checkpoint checkpoint = Checkpoint::open(resolve_model(options.model));
  if (!options.record.empty() && checkpoint.reads(options.record))
    throw invalid("--record {} is a file of the model itself, which it would overwrite; choose another name",
                  options.record);
  ModelFacts facts = read_model_facts(checkpoint, options);
  if (max_logits > 0 && !facts.config.has_logits)
    throw unsupported("{} does not generate text; it can only embed or score it", options.model);
  options = options_for(std::move(options), facts.config);
  host_share = runtime.host_memory.take([&](size_t host_left) {
    memory_share = runtime.memory.take([&](size_t left) { return plan_within(left, host_left, facts, max_logits); });
    return plan.host ? plan.host->total() : 0;
  });
  if (options.gpu_layers == kAutoGpuLayers) options.gpu_layers = plan.gpu_layers;  // later plans keep it
  options.expert_bytes = plan.expert_slots > 0 ? plan.experts : kAllExperts;       // what later plans keep
  if (options.processes) agree(checkpoint, facts.config);
  load(checkpoint, facts.config);
  load_drafters(checkpoint, facts.drafters);
  settle_memory(facts, memory_before, max_logits);
  if (options.processes) agree_on_cache();

  const CacheLayout& layout = plan.layout;
  describe(checkpoint);
  if (identity.empty() && (!options.cache_dir.empty() || !options.shared_cache.empty() || !options.record.empty()))
    identity = model_identity(checkpoint, target.config, info.activations);
  checkpoint.check_unchanged();
  cache_identity = identity + " cache " + layout.identity();
  if (draft_model) cache_identity += draft_model->identity();
  // The bits of a device are not the CPU's.
  if (runtime.device) cache_identity += fmt::format(" device {}", runtime.device->name());
  if (plan.shares_layers()) cache_identity += fmt::format(" layers {}", plan.gpu_layers);
  if (plan.cpu_moe_layers > 0) cache_identity += fmt::format(" experts on the CPU in {} layers", plan.cpu_moe_layers);
  if (plan.host) cache_identity += fmt::format(" host activations {}", name(plan.host->activation_type));
  cache = {layout, info.kv_pages, info.kv_states};
  tune_kernels();
  options.on_load = nullptr;  // it may refer to what ends with the caller
  make_executor();
  adapters.set_limits(plan.adapters, plan.limits.max_rank);
  for (const AdapterOption& adapter : options.adapters) add_adapter(adapter, checkpoint);
  load_control_vectors();
}

void LoadedModel::tune_kernels() {
  if (options.tune == TuneMode::kOff || options.tuning_file.empty()) return;
  const bool force = options.tune == TuneMode::kForce;
  if (!runtime.device || cpu_layers) {
    const Compute compute = runtime.cpu.compute(plan.host ? plan.host->activation_type : plan.activation_type);
    const TuningFile file(options.tuning_file, tuning_machine(compute), warn);
    const Team::Turn turn(runtime.team);  // other models on this runtime read the tuning in their steps
    tune(compute, runtime.tuning, cpu_layers ? *cpu_layers : target, file, force, options.on_load);
  }
  // Several devices have shares of matrices, which are kinds of their own: they take the usual kernels.
  if (!runtime.device || plan.devices > 1 || runtime.device->tuned_as().empty()) return;
  const TuningFile file(options.tuning_file, runtime.device->tuned_as(), warn);
  try {
    tune(*runtime.device, target, plan.activation_type, plan.limits.max_rows, file, force, options.on_load);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kResource) throw;
    warn(fmt::format(
        "cannot measure which kernels are the fastest: {}; the usual ones are used; --tune off measures nothing",
        error.what()));
  }
}

// All processes must have the same model, compute it in the same way, and understand the same orders.
void LoadedModel::agree(const Checkpoint& checkpoint, const ModelConfig& config) {
  const DecoderLimits& limits = plan.limits;
  identity = model_identity(checkpoint, config, name(plan.activation_type));
  std::string adapter_files, vectors;
  for (const AdapterOption& adapter : options.adapters) {
    const AdapterFiles files = AdapterFiles::open(adapter.path);
    adapter_files += adapter.name;
    for (const MappedFile& file : files.mappings()) adapter_files += fmt::format(" {:016x} ", checksum(file.bytes()));
  }
  for (const ControlVectorOption& vector : options.control_vectors) {
    vectors += fmt::format("{:016x} scale {} layers {} to {} ", checksum(MappedFile(vector.path).bytes()), vector.scale,
                           options.control_first_layer, options.control_last_layer);
  }
  std::string stage_layers = "none";
  if (!plan.stages.empty()) stage_layers = fmt::format("micro-batches of {} rows", plan.micro_batches.least_rows);
  for (const StagePlan& stage : plan.stages)
    stage_layers += fmt::format(", {} layers", stage.layers.end - stage.layers.begin);
  require_same(*options.processes,
               {{"stages", stage_layers},
                {"kernels", std::string(runtime.backend().name())},
                {"activations", std::string(name(plan.activation_type))},
                {"model", identity},
                {"KV cache", plan.layout.identity()},
                {"limits", fmt::format("{} rows, {} logits, {} hidden states, {} drafts, rank {}", limits.max_rows,
                                       limits.max_logits, limits.max_hidden, limits.max_drafted, limits.max_rank)},
                {"adapters", adapter_files.empty() ? "none" : adapter_files},
                {"control vectors", vectors.empty() ? "none" : vectors}});
}

// The cache is as large in all processes as the smallest of them can keep.
void LoadedModel::agree_on_cache() {
  require_same(*options.processes, {{"drafter", draft_model ? draft_model->identity() : "none"}});
  CacheSize& size = plan.cache;
  const std::vector<int64_t> least = least_of_all(*options.processes, {size.units, size.states, size.max_model_len});
  size.units = static_cast<int>(least[0]);
  size.states = static_cast<int>(least[1]);
  size.max_model_len = plan.limits.max_positions = static_cast<int>(least[2]);
  size.bytes = static_cast<size_t>(size.units) * plan.cached.unit_bytes() +
               static_cast<size_t>(size.states) * plan.cached.state_bytes();
}

Executor& LoadedModel::executor() const {
  if (remote) return *remote;
  if (processes) return *processes;
  if (ranks) return *ranks;
  if (stages) return *stages;
  return *local;
}

Decoder* LoadedModel::decoder() const {
  if (processes && !plan.stages.empty()) return nullptr;
  LocalExecutor* const first = processes ? &processes->local() : ranks ? &ranks->rank(0) : local.get();
  return first ? &first->decoder() : nullptr;
}

GatherCounts LoadedModel::gathered() const {
  return processes ? processes->gathered() : ranks ? ranks->gathered() : GatherCounts();
}

uint64_t LoadedModel::stage_bytes() const {
  return processes ? processes->sent_bytes() : stages ? stages->sent_bytes() : 0;
}

void LoadedModel::make_executor() {
  if (options.processes) {
    processes = std::make_unique<ProcessesExecutor>(
        *options.processes, rank_patience(options.rank_timeout, !plan.stages.empty()), target.config, target.weights,
        cache, runtime.cpu, runtime.team, plan.activation_type, plan.limits,
        StageCut{plan.stage_layers(), plan.micro_batches});
  } else if (plan.devices > 1) {
    rank_group = std::make_unique<RankGroup>(runtime.devices());
    std::vector<const Weights*> weights{&target.weights};
    for (const Weights& other : rank_weights) weights.push_back(&other);
    ranks =
        std::make_unique<RanksExecutor>(target.config, weights, cache, *rank_group, plan.activation_type, plan.limits);
  } else if (plan.ranks > 1) {
    const Placement placement = place_parts(options.numa, plan.ranks);
    rank_group = std::make_unique<RankGroup>(runtime.cpu, plan.ranks, runtime.team.size(), placement);
    if (placement) place_by_ranks(target.config, target.weights, placement, plan.ranks);
    const std::vector<const Weights*> weights(static_cast<size_t>(plan.ranks), &target.weights);
    ranks =
        std::make_unique<RanksExecutor>(target.config, weights, cache, *rank_group, plan.activation_type, plan.limits);
  } else if (!plan.stages.empty()) {
    make_stages();
  } else {
    leave_experts_to(runtime.cpu);
    local = std::make_unique<LocalExecutor>(target.config, target.weights, cache, backend(), plan.activation_type,
                                            plan.limits);
  }
  if (!draft_model) return;
  if (!plan.stages.empty() && processes && runtime.rank + 1 < options.pipeline_parallel_size) return;
  if (stages)
    return make_drafter(stages->last(), plan.shares_layers() ? *runtime.device : stages->backend(stages->stages() - 1),
                        0);
  for_each_rank(
      [this](LocalExecutor& executor, Backend& backend, size_t memory) { make_drafter(executor, backend, memory); });
}

// host: of the CPU, whichever threads compute them.
void LoadedModel::leave_experts_to(Backend& host) {
  if (plan.cpu_moe_layers > 0)
    host_experts = std::make_unique<HostExpertsBackend>(*runtime.device, host, plan.host->activation_type,
                                                        !device_has_experts(target.config, plan.cpu_moe_layers));
}

void LoadedModel::make_stages() {
  const std::vector<LayerRange> layers = plan.stage_layers();
  std::vector<StagePart> parts;
  for (const LayerRange& own : layers) {
    const bool by_cpu = plan.shares_layers() && own.begin == 0;
    parts.push_back({own, by_cpu ? cpu_layers->weights : target.weights,
                     by_cpu ? plan.host->activation_type : plan.activation_type});
  }
  std::vector<int> widths;  // of the borders
  for (size_t next = 1; next < layers.size(); ++next) widths.push_back(border_width(target.config, layers[next].begin));
  if (plan.shares_layers()) {
    const auto device = [this](Backend& cpu) -> Backend& {
      leave_experts_to(cpu);
      return backend();
    };
    stage_group =
        std::make_unique<StageGroup>(runtime.cpu, runtime.team.size(), device, widths[0], plan.limits.max_rows);
  } else {
    const Placement placement = place_parts(options.numa, static_cast<int>(layers.size()));
    stage_group =
        std::make_unique<StageGroup>(runtime.cpu, runtime.team.size(), widths, plan.limits.max_rows, placement);
    if (placement) place_by_stages(target.config, target.weights, placement, layers);
  }
  stages = std::make_unique<StagesExecutor>(target.config, parts, cache, *stage_group, plan.micro_batches, plan.limits);
}

void LoadedModel::make_drafter(LocalExecutor& executor, Backend& backend, size_t memory) const {
  DraftModel& drafter = memory == 0 ? *draft_model : *rank_draft_models[memory - 1];
  const Weights& weights = memory == 0 ? target.weights : rank_weights[memory - 1];
  executor.set_drafter(drafter.make_network(
      {target.config, weights, executor.cache(), backend, plan.activation_type, executor.decoder(), plan.limits}));
}

template <class F>
void LoadedModel::for_each_rank(F f) {
  if (local) f(*local, runtime.backend(), size_t{0});
  if (processes) f(processes->local(), processes->backend(), size_t{0});
  for (int rank = 0; ranks && rank < ranks->ranks(); ++rank)
    f(ranks->rank(rank), ranks->backend(rank), rank_weights.empty() ? 0 : static_cast<size_t>(rank));
  for (int stage = 0; stages && stage < stages->stages(); ++stage)
    f(stages->stage(stage), stages->backend(stage), size_t{0});
}

void LoadedModel::compute_by(std::unique_ptr<Executor> other) {
  remote = std::move(other);
  ranks.reset();
  stages.reset();
  local.reset();
}

void LoadedModel::add_adapter(const AdapterOption& option) {
  if (remote)
    throw unsupported("adapters cannot be loaded later with --executor-process; name them when the engine starts");
  if (processes)
    throw unsupported(
        "adapters cannot be loaded later while several processes compute; name them at the start: --lora");
  add_adapter(option, Checkpoint::open(resolve_model(options.model)));
}

void LoadedModel::add_adapter(const AdapterOption& option, const Checkpoint& checkpoint) {
  const AdapterFiles files = AdapterFiles::open(option.path);
  const AdapterFacts facts = check_adapter(files, checkpoint, target.config);
  adapters.check(option.name, facts);
  const auto load = [&](const Weights& weights, Backend& backend) {
    return load_adapter(files, checkpoint, target.config, weights, backend, runtime.team);
  };
  const AdapterLease added = adapters.add({option.name, option.path, facts.bytes, load_by_rank(load)});
  set_adapter(added->number, added->by_rank);
}

void LoadedModel::set_adapter(int number, std::span<const Adapter> by_rank) {
  for_each_rank([&](LocalExecutor& executor, Backend&, size_t memory) {
    executor.decoder().set_adapter(number, by_rank[memory]);
  });
}

void LoadedModel::load_control_vectors() {
  if (options.control_vectors.empty()) return;
  const ControlVectors vectors = read_control_vectors(options, target.config);
  for_each_rank([&](LocalExecutor& executor, Backend& backend, size_t) {
    std::vector<Vector> directions;
    for (const std::vector<float>& direction : vectors.directions()) directions.emplace_back(backend, direction);
    executor.decoder().set_directions(std::move(directions));
  });
  // Cached keys and values depend on them.
  cache_identity += " control " + vectors.identity();
}

// Returns what to take of the `left` bytes. host_left: next to a device, bytes of the host.
size_t LoadedModel::plan_within(size_t left, size_t host_left, const ModelFacts& facts, int max_logits) {
  const size_t most = options.memory_bytes > 0 ? options.memory_bytes : std::numeric_limits<size_t>::max();
  Machine machine = runtime.machine(std::min(left, most));
  machine.host_memory = std::min(host_left, most);
  plan = plan_memory(facts, options, machine, max_logits);
  return plan.total();
}

// Compares what loading took with the plan, before the cache is allocated.
//
// The plan is exact for everything large, because the same code says how much it allocates. It cannot be exact for
// vocabularies, whose tables and free lists no header shows. A margin that always suffices would waste memory for nearly
// all models, so the plan has an estimate, and what loading really took decides: the cache, which is allocated last, gets
// less, or the model is refused after all. A plan is never revised the other way, so the usual table is that of `inspect`.
//
// With other models on the same runtime, the process also grows for their sake, so only the estimate counts.
void LoadedModel::settle_memory(ModelFacts& facts, size_t memory_before, int max_logits) {
  const size_t now = anonymous_memory(), loaded = now - std::min(now, memory_before + target.weights.memory.size());
  spdlog::debug("memory: loading took {} KiB besides the matrices, {} KiB were planned", loaded >> 10,
                plan.loaded >> 10);
  const bool lost_drafter = facts.drafters.named.model && !draft_model;
  if (lost_drafter) facts.drafters.drop_model();
  const bool alone = runtime.memory.shares() == 1;
  if (alone && !plan.own_memory && loaded > plan.loaded) facts.unplanned = loaded - plan.loaded;
  if (lost_drafter || facts.unplanned > 0)
    runtime.host_memory.resize(host_share, [&](size_t host_left) {
      runtime.memory.resize(memory_share, [&](size_t left) { return plan_within(left, host_left, facts, max_logits); });
      return plan.host ? plan.host->total() : 0;
    });
  if (text_drafters) text_drafters->limit(plan.drafted_tokens);
}

// Of the model's layers, those of `target`: the ones that this process computes, or its device.
LoadedLayers LoadedModel::own_part() const {
  if (plan.devices > 1) return {.layers = {}, .rank = {0, plan.devices}};
  if (plan.stages.empty() || (!options.processes && !plan.shares_layers())) return {};
  const size_t stage = plan.shares_layers() ? 1 : static_cast<size_t>(runtime.rank);
  const bool last = stage + 1 == plan.stages.size();
  return {.layers = plan.stages[stage].layers, .embedding = last && plan.drafter_embedding};
}

void LoadedModel::load_other_ranks(const Checkpoint& checkpoint, WeightOptions loading) {
  const std::vector<Backend*> devices = runtime.devices();
  rank_weights.reserve(devices.size());
  for (int rank = 1; rank < plan.devices; ++rank) {
    loading.part.rank.rank = rank;
    rank_weights.push_back(
        load_weights(checkpoint, target.config, *devices[static_cast<size_t>(rank)], runtime.team, loading));
  }
}

void LoadedModel::load(const Checkpoint& checkpoint, const ModelConfig& config) {
  target.config = config;
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
  chat_template = parse_chat_template(text, template_name);
  WeightOptions loading{.memory = plan.budget,
                        .expert_slots = static_cast<size_t>(plan.expert_slots),
                        .pack_cache = options.pack_cache,
                        .warn = warn,
                        .report = options.on_load,
                        .part = own_part()};
  if (plan.cpu_moe_layers > 0)
    loading.host_experts = {.backend = &runtime.cpu, .layers = plan.host_expert_layers(), .memory = plan.host->budget};
  target.weights = load_weights(checkpoint, target.config, runtime.backend(), runtime.team, loading);
  if (plan.devices > 1) load_other_ranks(checkpoint, loading);
  if (plan.shares_layers()) {
    loading.memory = plan.host->budget;
    loading.part = {.layers = plan.stages[0].layers};
    loading.host_experts = {};
    cpu_layers = std::make_unique<Model>(Model{.config = config, .text = {}, .weights = {}});
    cpu_layers->weights = load_weights(checkpoint, cpu_layers->config, runtime.cpu, runtime.team, loading);
  }
  if (const auto& experts = target.weights.experts)
    spdlog::info("experts: {} of {} in memory at a time, in {} MiB; the others are read from {}", experts->slots(),
                 experts->file().experts(), experts->memory_bytes() >> 20, experts->file().name());
  if (target.weights.mapped) spdlog::debug("weights: mapped {}", target.weights.mapped->file.path().string());
}

void LoadedModel::load_drafters(const Checkpoint& checkpoint, const DrafterFacts& facts) {
  const NamedDrafters& named = facts.named;
  const auto go_without = [](const std::string& why) {
    warn("--speculative auto: " + why + "; answers go on without multi-token prediction");
  };
  if (!facts.problem.empty()) go_without(facts.problem);
  if (!named.any()) return;
  const Tokenizer* const tokenizer = target.text.tokenizer ? &*target.text.tokenizer : nullptr;
  text_drafters = std::make_unique<TextDrafters>(named.texts, options, tokenizer);
  if (!named.model) return;
  const size_t left = plan.budget - std::min(plan.budget, target.weights.matrix_bytes);
  try {
    const auto load = [&](Backend& backend) {
      return DraftModel::load(*named.model, options, checkpoint, target, backend, runtime.team, left);
    };
    for (size_t rank = 1; rank <= rank_weights.size(); ++rank)
      rank_draft_models.push_back(load(*runtime.devices()[rank]));
    draft_model = load(runtime.backend());
  } catch (const Error& e) {
    // Nobody has asked for this drafter by name.
    if (options.speculative != Speculation::kAuto || named.model != DrafterKind::kMtp) throw;
    go_without(e.what());
  }
}

void LoadedModel::describe(const Checkpoint& checkpoint) {
  const ModelConfig& config = target.config;
  const Weights& weights = target.weights;
  info.name = options.model;
  info.architecture = config.architecture;
  info.quantization = weights.main_type;
  info.kernels = runtime.backend().name();
  info.threads = runtime.team.size();
  info.ranks = options.tensor_parallel_size;
  info.stages = options.pipeline_parallel_size;
  info.gpu_layers = plan.gpu_layers;
  info.cpu_moe_layers = plan.cpu_moe_layers;
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
  info.decode_bytes = weights.decode_bytes;
  info.activations = name(plan.activation_type);
  describe_memory();
  const SamplingRecommendation sampling = sampling_defaults(checkpoint);
  info.sampling_defaults = sampling.values;
  for (const std::string& warning : sampling.warnings) spdlog::warn("{}", warning);
}

void LoadedModel::describe_memory() {
  const CacheSize& cache = plan.cache;
  info.memory_bytes = plan.budget;
  info.weight_bytes =
      target.weights.matrix_bytes + target.weights.host_bytes + (cpu_layers ? cpu_layers->weights.matrix_bytes : 0);
  info.expert_slots = plan.expert_slots;
  info.expert_bytes = plan.experts;
  info.activation_bytes = plan.activations;
  info.page_store_bytes = plan.page_store;
  info.other_bytes = plan.without_cache();
  info.kv_cache_bytes = cache.bytes;
  if (const auto& host = plan.host) {
    info.memory_bytes += host->budget;
    info.activation_bytes += host->activations;
    info.other_bytes += host->total() - host->cache;
    info.kv_cache_bytes += host->cache;
  }
  info.other_bytes -= info.weight_bytes + info.activation_bytes;
  if (!plan.own_memory || plan.host) info.other_bytes -= info.page_store_bytes;
  info.max_model_len = cache.max_model_len;
  info.kv_cache_dtype = name(plan.layout.type());
  info.kv_pages = cache.units;
  info.kv_groups = static_cast<int>(plan.layout.groups().size());
  info.kv_states = cache.states;
  info.max_adapters = static_cast<int>(options.adapters.size()) + options.max_adapters;
  info.page_tokens = kPageTokens;
  info.kv_bytes_per_token = plan.layout.token_bytes();
  info.kv_bytes_per_sequence = cache.bytes_per_sequence;
}

}  // namespace quire
