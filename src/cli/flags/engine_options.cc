#include "cli/flags/engine_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "base/cpu.h"
#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/team.h"
#include "cli/flags/choice_flag.h"
#include "cli/flags/parsed_by.h"
#include "engine/cache/shared_tier.h"
#include "engine/device.h"
#include "engine/dtype_names.h"
#include "engine/option_names.h"
#include "engine/ranks/rank_group.h"
#include "engine/tuner.h"
#include "json/parse.h"
#include "model/model_text.h"
#include "ops/cpu/probe.h"
#include "text/named_templates.h"

namespace quire {
namespace {

constexpr const char* kDigits = "0123456789";
constexpr const char* kMemoryGroup = "Memory";
constexpr const char* kComputeGroup = "Computation";
constexpr const char* kSchedulingGroup = "Scheduling";
constexpr const char* kAdapterGroup = "Adapters";
constexpr int kMaxLayerNumber = 1 << 16;
constexpr const char* kTraceGroup = "Tracing";
constexpr const char* kSpeculationGroup = "Speculative decoding";
constexpr const char* kCacheGroup = "Prefix cache";
constexpr const char* kTemplateGroup = "Chat template";
constexpr size_t kMaxTemplateBytes = size_t{16} << 20;

// "auto" or a name of the table, which must outlive the option.
template <class Enum, size_t N>
CLI::Validator auto_or_one_of(const NameTable<Enum, N>& table) {
  const auto check = [&table](const std::string& text) {
    const bool known = text == "auto" || find_value(table, text);
    return known ? "" : fmt::format("{} is not supported; use auto, {}", text, list_names(table));
  };
  std::string names = "auto";
  for (const auto& [value, name] : table) names += fmt::format(",{}", name);
  return {check, "{" + names + "}", ""};
}

// The template that --chat-template means: of a file, of this name, or of another model.
std::string template_source(const std::string& argument) {
  if (const auto known = named_template(argument)) return *known;
  const std::filesystem::path path(argument);
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored) && path.extension() != ".gguf")
    return read_text_file(path, kMaxTemplateBytes);
  const ModelText text = load_model_text(argument);
  if (!text.template_source) throw not_found("{} has no chat template", argument);
  return *text.template_source;
}

void set_template_kwargs(EngineOptions& options, const std::string& text) {
  if (!Json::accept(text) || !parse_json(text, "").is_object())
    throw invalid("must be a JSON object such as {{\"enable_thinking\": false}}, not {}", text);
  options.chat_template_kwargs = text;
}

bool is_size(const std::string& text) {
  return check_whole_number(text.substr(0, text.find_first_not_of(kDigits))).empty();
}

constexpr size_t kMostSizeDigits = 15;  // so that no sum of sizes overflows

// --expert-memory: turns the flag's value into bytes. Returns what is wrong with it.
std::string read_expert_memory(std::string& text) {
  const std::string given = text;
  if (given == "auto" || given == "all") {
    text = std::to_string(given == "auto" ? 0 : kAllExperts);
    return "";
  }
  const bool good = is_size(given) && CLI::AsSizeValue(false)(text).empty() && text != "0";
  if (!good) return "must be auto, all, or a size such as 512MiB or 4GiB, not " + given;
  return text.size() > kMostSizeDigits ? "must be at most 10^15 bytes" : "";
}

// --gpu-layers: turns the flag's value into EngineOptions::gpu_layers. Returns what is wrong with it.
std::string read_gpu_layers(std::string& text) {
  if (text == "auto" || text == "all") {
    text = std::to_string(text == "auto" ? kAutoGpuLayers : kAllGpuLayers);
    return "";
  }
  const bool good = check_whole_number(text).empty() && text.size() <= 9;
  return good ? "" : "must be a number of layers, auto or all, not " + text;
}

}  // namespace

CLI::Option* add_size(CLI::App& app, const char* names, size_t& bytes, const char* help) {
  const auto check_number = [](const std::string& text) {
    return is_size(text) ? "" : "must be a size such as 512MiB or 4GiB, not " + text;
  };
  return app.add_option(names, bytes, help)
      ->transform(CLI::AsSizeValue(false))
      ->transform(CLI::Validator(check_number, ""))  // runs first
      ->check(
          [](const std::string& text) { return text.size() > kMostSizeDigits ? "must be at most 10^15 bytes" : ""; },
          "", "")
      ->type_name("SIZE")
      ->capture_default_str();
}

double measure_read_bandwidth(int threads) {
  if (threads < 0 || threads > kMaxThreads) return 0;  // loading the model reports it
  Team team(threads > 0 ? threads : usable_cores());
  return ReadProbe(team, size_t{128} << 20).bandwidth(2);
}

std::string check_decimal(const std::string& text) {
  const size_t first = text.find_first_not_of("+-");
  const bool leads = first != text.npos && text[first] == '0' && first + 1 < text.size() && text[first + 1] != '.';
  return leads ? "must be a decimal number without leading zeros, not " + text : "";
}

CLI::Validator between(double low, double high) {
  const auto check = [low, high](const std::string& text) -> std::string {
    if (std::string wrong = check_decimal(text); !wrong.empty()) return wrong;
    double value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + (text.starts_with('+') ? 1 : 0), end, value);
    if (error == std::errc::invalid_argument || stop != end) return fmt::format("must be a number, not '{}'", text);
    if (error == std::errc() && value >= low && value <= high) return "";
    if (high == std::numeric_limits<int>::max())
      return fmt::format("must be between {} and 2^31 - 1, not {}", low, text);
    return fmt::format("must be between {} and {}, not {}", low, high, text);
  };
  return {check, "", ""};
}

std::string check_whole_number(const std::string& text) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const bool good = error == std::errc() && stop == end && (text.front() != '0' || text.size() == 1);
  return good ? "" : "must be a whole number, not " + text;
}

void add_ranks_option(CLI::App& app, int& ranks) {
  app.add_option(
         "--tensor-parallel-size", ranks,
         "or -tp N: so many teams of threads, or with --device cuda so many GPUs, share each layer's outputs and "
         "heads; the answers are the same (docs/scale.md)")
      ->check(between(1, kMaxRanks))
      ->group(kComputeGroup)
      ->capture_default_str();
}

CLI::Option* add_run_ahead_option(CLI::App& app, EngineOptions& o) {
  return app.add_flag_callback(
      "--no-run-ahead", [&o] { o.run_ahead = false; },
      "with --device cuda, start no step before the last one has ended (for comparison; docs/cuda.md)");
}

void add_stage_options(CLI::App& app, EngineOptions& o) {
  app.add_option(
         "--pipeline-parallel-size", o.pipeline_parallel_size,
         "or -pp N: so many stages, each with some of the layers, work on a step one after the other; the answers "
         "are the same (docs/scale.md)")
      ->check(between(1, kMaxRanks))
      ->group(kComputeGroup)
      ->capture_default_str();
  app.add_option("--gpu-layers,--n-gpu-layers", o.gpu_layers,
                 "or -ngl N: with --device cuda, the GPU has so many of the last layers, and the CPU the others; auto: "
                 "the most that fit; 0: the CPU computes (docs/cuda.md)")
      ->transform(CLI::Validator(read_gpu_layers, ""))
      ->type_name("N|auto|all")
      ->default_str("all")
      ->group(kComputeGroup);
  CLI::Option* const all_experts =
      app.add_flag_callback(
             "--cpu-moe", [&o] { o.cpu_moe_layers = kAllCpuMoeLayers; },
             "or -cmoe: with --device cuda, all experts of a mixture stay in the host's memory, and the CPU computes "
             "them; the GPU computes all else (docs/cuda.md)")
          ->group(kComputeGroup);
  app.add_option("--n-cpu-moe", o.cpu_moe_layers, "or -ncmoe N: likewise the experts of the first N layers")
      ->check(between(0, std::numeric_limits<int>::max()))
      ->excludes(all_experts)
      ->group(kComputeGroup)
      ->capture_default_str();
  app.add_option("--micro-batch-rows", o.micro_batch_rows,
                 "with stages, or layers on a GPU and the CPU: least rows of the parts of a step that they work on at "
                 "the same time")
      ->check(between(1, kMaxNumBatchedTokens))
      ->group(kComputeGroup)
      ->capture_default_str();
}

void add_kernels_option(CLI::App& app, std::string& kernels) {
  app.add_option("--kernels", kernels, "instruction set of the kernels; must be one that this machine has")
      ->check(CLI::IsMember({"auto", "reference", "avx2", "avx2vnni", "avx512", "avx512bf16", "amx"}))
      ->envname("QUIRE_KERNELS")
      ->group(kComputeGroup)
      ->capture_default_str();
}

void need_cpu(const EngineOptions& options) {
  if (options.device != "cpu")
    throw CLI::ValidationError("--device", "this command works on the processor only; leave it out");
}

CLI::Option* add_activations(CLI::App& app, const char* flag, std::string& name, const char* help) {
  return app.add_option(flag, name, help)->check(auto_or_one_of(kActivationsNames));
}

CLI::Option* add_kv_type(CLI::App& app, const char* flag, std::string& name, const char* help) {
  return app.add_option(flag, name, help)->check(auto_or_one_of(kKvTypeNames));
}

CLI::Validator is_device() {
  const auto check = [](const std::string& text) {
    for (size_t begin = 0; begin <= text.size();) {  // a list, for ranks
      const size_t end = std::min(text.find(',', begin), text.size());
      if (!parse_device_name(std::string_view(text).substr(begin, end - begin)))
        return fmt::format("must be cpu, cuda or cuda:N, not '{}'", text);
      begin = end + 1;
    }
    return std::string();
  };
  return {check, "cpu|cuda|cuda:N", ""};
}

void add_model_options(CLI::App& app, EngineOptions& o) {
  constexpr int kMost = std::numeric_limits<int>::max();
  app.add_option(
         "-m,--model", o.model,
         "the model: a known name (`quire list`), a .gguf file, a Hugging Face directory, or hf:ORG/REPO[:QUANT], "
         "ollama:NAME[:TAG] or an https URL, which is downloaded (docs/hub.md)")
      ->type_name("MODEL")
      ->required();
  app.add_option("-c,--max-model-len,--ctx-size", o.max_model_len,
                 "maximum context length (prompt plus answer); 0: the model's, or less if memory is short")
      ->check(between(0, kMost))
      ->group(kMemoryGroup)
      ->capture_default_str();
  add_size(app, "--kv-cache-size", o.kv_cache_bytes,
           "memory for the KV cache; 0: what all sequences may need, but at most half of the available memory unless "
           "--memory is given")
      ->group(kMemoryGroup);
  add_size(app, "--memory", o.memory_bytes,
           "memory for everything; 0: what the machine or its cgroup has available, minus a margin")
      ->group(kMemoryGroup);
  add_kv_type(app, "--kv-cache-dtype", o.kv_cache_dtype,
              "data type of the KV cache; int8, fp8: half the memory of bf16, int4: a quarter (docs/quantization.md); "
              "auto: bf16, or f32 with --activations f32")
      ->group(kMemoryGroup)
      ->capture_default_str();
  app.add_option("-t,--threads", o.threads, "threads; 0: all usable cores")
      ->check(between(0, kMaxThreads))
      ->group(kComputeGroup)
      ->capture_default_str();
  add_ranks_option(app, o.tensor_parallel_size);
  app.add_option(
         "--numa", o.numa,
         "with -tp or -pp on a machine with several NUMA nodes: auto: each rank computes, and has its weights and "
         "cache, on nodes of its own; off: anywhere")
      ->check(CLI::IsMember({"auto", "off"}))
      ->group(kComputeGroup)
      ->capture_default_str();
  add_kernels_option(app, o.kernels);
  app.add_option("--device", o.device,
                 "what computes: cpu; cuda or cuda:N, an NVIDIA GPU; with -tp, cuda for the first ones, or a list "
                 "such as cuda:0,cuda:2 (docs/cuda.md)")
      ->check(is_device())
      ->envname("QUIRE_DEVICE")
      ->group(kComputeGroup)
      ->capture_default_str();
  app.add_option("--gpu-memory-utilization", o.gpu_memory_utilization,
                 "with --device cuda: the part of the GPU's free memory that may be taken")
      ->check(between(0.0, 1.0))
      ->group(kMemoryGroup)
      ->capture_default_str();
  o.tuning_file = default_tuning_file();
  add_choice(
      app, "--tune", o.tune, kTuneModeNames,
      "how to choose among the kernels' loops for the same work; off: the built-in choice; auto: the fastest, "
      "measured at the first start on this machine and kept in ~/.cache/quire/tuning.json; force: measure again. "
      "The answers are the same")
      ->envname("QUIRE_TUNE")
      ->group(kComputeGroup);
  app.add_option("--expert-memory", o.expert_bytes,
                 "mixtures of experts: memory for experts; the others are read from a file when tokens choose them "
                 "(docs/serving.md); all: no file; auto: all if they fit, else what is left for them")
      ->transform(CLI::Validator(read_expert_memory, ""))
      ->type_name("auto|all|SIZE")
      ->default_str("auto")
      ->group(kMemoryGroup);
  app.add_option("--pack-cache", o.pack_cache,
                 "private directory that keeps packed weights, which the next start maps (docs/serving.md)")
      ->type_name("DIR")
      ->group(kMemoryGroup)
      ->capture_default_str();
  add_activations(
      app, "--activations", o.activations,
      "data type that the inputs of linear layers are rounded to; auto: bf16 with AMX or on a GPU, else int8x2; "
      "fp8: those of FP8 weights to E4M3, the others to bf16 (docs/exactness.md)")
      ->group(kComputeGroup)
      ->capture_default_str();
  app.add_option("--max-num-batched-tokens,--batch-size", o.max_num_batched_tokens,
                 "most tokens computed in one step: running answers first, then prompt chunks")
      ->check(between(1, kMaxNumBatchedTokens))
      ->group(kComputeGroup)
      ->capture_default_str();
}

void add_drafter_options(CLI::App& app, EngineOptions& o) {
  app.add_option("--num-speculative-tokens,--draft-max", o.num_speculative_tokens,
                 "most tokens to guess for a sequence in one step")
      ->check(between(1, kMostSpeculativeTokens))
      ->group(kSpeculationGroup)
      ->capture_default_str();
  app.add_option("--draft-model,--model-draft", o.draft_model, "a small model with the same vocabulary, which guesses")
      ->type_name("MODEL")
      ->group(kSpeculationGroup);
  app.add_option("--eagle-head", o.eagle_head, "an EAGLE head of this model: a safetensors file or its directory")
      ->type_name("PATH")
      ->group(kSpeculationGroup);
  app.add_option("--medusa-heads", o.medusa_heads, "Medusa heads of this model: a safetensors file or its directory")
      ->type_name("PATH")
      ->group(kSpeculationGroup);
  app.add_option("--early-exit-layers", o.early_exit_layers,
                 "layers that guess with --speculative early-exit; 0: four fifths of the model's")
      ->check(between(0, 10000))
      ->group(kSpeculationGroup)
      ->capture_default_str();
  app.add_option("--speculative-corpus", o.speculative_corpus, "a text that answers resemble, to guess from")
      ->type_name("FILE")
      ->group(kSpeculationGroup);
  app.add_option("--draft-vocabulary", o.draft_vocabulary,
                 "a safetensors file of token ids by frequency; guesses are among the first 8192")
      ->type_name("FILE")
      ->group(kSpeculationGroup);
  add_choice(app, "--speculative-acceptance", o.speculative_acceptance, kDraftAcceptanceNames,
             "exact: the answers are those without speculation; rejection: sampled answers follow the same "
             "distribution with other draws, and more guesses of models and heads are right")
      ->group(kSpeculationGroup);
  app.add_flag_callback(
         "--speculate-always", [&o] { o.speculate_always = true; },
         "guess as many tokens as allowed, whether it pays or not (for comparison)")
      ->group(kSpeculationGroup);
}

// NAME=PATH, or a path, whose last part without its ending is the name.
AdapterOption read_adapter_option(const std::string& text) {
  const size_t equals = text.find('=');
  AdapterOption adapter;
  if (equals != text.npos && text.find('/') > equals) {
    adapter = {text.substr(0, equals), text.substr(equals + 1)};
  } else {
    std::filesystem::path path(text);
    if (path.filename().empty()) path = path.parent_path();  // "folder/"
    adapter = {path.extension() == ".gguf" ? path.stem().string() : path.filename().string(), text};
  }
  if (adapter.name.empty() || adapter.path.empty())
    throw CLI::ValidationError("--lora", fmt::format("must be NAME=PATH or a path, not '{}'", text));
  return adapter;
}

void add_adapter_options(CLI::App& app, EngineOptions& o) {
  app.add_option_function<std::vector<std::string>>(
         "--lora,--lora-modules",
         [&o](const std::vector<std::string>& given) {
           for (const std::string& text : given) {
             AdapterOption adapter = read_adapter_option(text);
             if (std::ranges::any_of(o.adapters,
                                     [&](const AdapterOption& other) { return other.name == adapter.name; }))
               throw CLI::ValidationError("--lora", fmt::format("gives two adapters the name {}", adapter.name));
             o.adapters.push_back(std::move(adapter));
           }
         },
         "a LoRA adapter of the model: a PEFT directory or a GGUF file, which requests name as their model and with "
         "which run answers; with serve, may be repeated (docs/adapters.md)")
      ->type_name("[NAME=]PATH")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(kAdapterGroup);
  add_size(app, "--lora-memory", o.adapter_bytes,
           "serve: memory for adapters that clients load with /v1/load_lora_adapter, from any path that the server can "
           "read; 0: they cannot")
      ->group(kAdapterGroup);
  app.add_option("--max-loras", o.max_adapters,
                 "serve: the same in numbers: memory for so many adapters of --max-lora-rank")
      ->check(between(0, kMaxAdapters))
      ->group(kAdapterGroup)
      ->capture_default_str();
  app.add_option("--max-lora-rank", o.max_adapter_rank, "largest rank of those adapters")
      ->check(between(1, kMaxAdapterRank))
      ->group(kAdapterGroup)
      ->capture_default_str();
}

// FILE:SCALE.
ControlVectorOption read_scaled_vector(const std::string& text) {
  const size_t colon = text.rfind(':');
  ControlVectorOption vector{.path = text.substr(0, colon)};
  char* end = nullptr;
  if (colon != text.npos) vector.scale = std::strtod(text.c_str() + colon + 1, &end);
  if (vector.path.empty() || !end || end == text.c_str() + colon + 1 || *end != '\0' || !std::isfinite(vector.scale))
    throw CLI::ValidationError("--control-vector-scaled", fmt::format("must be FILE:SCALE, not '{}'", text));
  return vector;
}

void add_control_vector_options(CLI::App& app, EngineOptions& o) {
  const auto files = [&](const char* flag, const char* type, const char* help, auto read) {
    app.add_option_function<std::vector<std::string>>(
           flag,
           [&o, read](const std::vector<std::string>& given) {
             for (const std::string& text : given) o.control_vectors.push_back(read(text));
           },
           help)
        ->type_name(type)
        ->expected(1)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->group(kAdapterGroup);
  };
  files("--control-vector", "FILE",
        "a control vector of the model, a GGUF file of llama.cpp, which changes all answers; may be repeated: the "
        "vectors are added up (docs/adapters.md)",
        [](const std::string& text) { return ControlVectorOption{.path = text}; });
  files("--control-vector-scaled", "FILE:SCALE", "the same, times a number, which may be negative", read_scaled_vector);
  app.add_option_function<std::vector<int>>(
         "--control-vector-layer-range",
         [&o](const std::vector<int>& range) {
           o.control_first_layer = range[0];
           o.control_last_layer = range[1];
         },
         "the first and the last layer that they change, counted from 0; by default 1 to the last")
      ->type_name("FIRST LAST")
      ->expected(2)
      ->check(between(1, kMaxLayerNumber))
      ->group(kAdapterGroup);
}

void add_engine_options(CLI::App& app, EngineOptions& o) {
  add_model_options(app, o);
  add_stage_options(app, o);
  add_adapter_options(app, o);
  add_control_vector_options(app, o);
  add_choice(app, "--speculative", o.speculative, kSpeculationNames,
             "guess tokens and verify several at once: the same answers, in fewer steps (docs/speculative.md). ngram: "
             "from the text so far; recent: from recent answers; corpus: from --speculative-corpus and recent answers; "
             "lookahead: from the model's wrong guesses; draft, early-exit, medusa, eagle: by a small model, the first "
             "layers or heads; mtp: by the model's own layer for multi-token prediction; auto: whichever pays")
      ->group(kSpeculationGroup);
  add_drafter_options(app, o);
  app.add_option("--max-num-seqs,--parallel", o.max_num_seqs, "most sequences that run together")
      ->check(between(1, kMaxNumSeqs))
      ->group(kSchedulingGroup)
      ->capture_default_str();
  add_choice(app, "--scheduler", o.scheduler, kSchedulerNames,
             "continuous; static: finish a whole batch before starting the next (for comparison)")
      ->group(kSchedulingGroup);
  app.add_flag("--executor-process", o.executor_process, "compute in a child process")->group("");  // for tests
  app.add_option("--record", o.record, "write every step to a file, which `quire replay` computes again")
      ->type_name("FILE")
      ->group(kSchedulingGroup);
  app.add_option("--trace-out", o.trace_out,
                 "write when each step, operation and request began and ended to this file, as Chrome's JSON for "
                 "ui.perfetto.dev and `quire report` (docs/tracing.md)")
      ->type_name("FILE")
      ->group(kTraceGroup);
  add_choice(app, "--trace-detail", o.trace_detail, kTraceDetailNames,
             "what the trace has of a step: its phases, or also each operation of each layer")
      ->group(kTraceGroup);
  add_size(app, "--trace-limit", o.trace_bytes,
           "most bytes of --trace-out; there the trace ends, and the engine goes on")
      ->check([](const std::string& bytes) { return bytes.size() > 5 ? "" : "must be at least 100kB"; }, "", "")
      ->group(kTraceGroup);
  app.add_option("--tpot-target", o.tpot_target,
                 "longest step in seconds while answers are being generated; limits their prompt chunks")
      ->check(between(kMinTpotTarget, kMaxTpotTarget))
      ->group(kSchedulingGroup)
      ->capture_default_str();
  app.add_option("--ttft-target", o.ttft_target,
                 "seconds a prompt may wait before only --tpot-target limits the steps (docs/serving.md)")
      ->check(between(0.0, kMaxTtftTarget))
      ->group(kSchedulingGroup)
      ->capture_default_str();
  app.add_flag_callback(
         "--no-chunked-prefill", [&o] { o.chunked_prefill = false; }, "compute each prompt as a single chunk")
      ->group(kSchedulingGroup);
  app.add_flag_callback(
         "--no-forced-tokens", [&o] { o.forced_tokens = false; },
         "sample also where structured output leaves only one token")
      ->group(kSchedulingGroup);
  app.add_flag_callback(
         "--no-device-sampling", [&o] { o.device_sampling = false; },
         "with --device cuda, bring all logits to the host (for comparison; docs/cuda.md)")
      ->group(kSchedulingGroup);
  add_run_ahead_option(app, o)->group(kSchedulingGroup);
  app.add_flag_callback(
         "--no-prefix-cache,--no-enable-prefix-caching", [&o] { o.prefix_cache = false; },
         "compute every prompt from its first token, even if an earlier one began the same way")
      ->group(kCacheGroup);
  CLI::Option* const cache_dir =
      app.add_option("--cache-dir", o.cache_dir, "private directory that keeps KV pages across restarts")
          ->type_name("DIR")
          ->group(kCacheGroup)
          ->capture_default_str();
  add_size(app, "--cache-size", o.cache_bytes, "most bytes of files in --cache-dir or a shared folder; 0: 4GiB")
      ->group(kCacheGroup);
  app.add_option("--shared-cache", o.shared_cache,
                 "where replicas share KV pages (docs/shared-cache.md): file:///FOLDER, redis://HOST:PORT/DATABASE, or "
                 "rediss:// for TLS; instead of --cache-dir")
      ->check(parsed_by([](const std::string& url) { parse_shared_cache(url); }))
      ->envname("QUIRE_SHARED_CACHE")
      ->excludes(cache_dir)
      ->type_name("URL")
      ->group(kCacheGroup);
  add_size(app, "--host-cache-size", o.host_cache_bytes, "extra memory for pages evicted from the KV cache; 0: none")
      ->group(kCacheGroup);
  app.add_flag_callback(
         "--no-kv-cache", [&o] { o.kv_cache = false; }, "recompute the whole sequence for each token (for comparison)")
      ->group(kCacheGroup);
}

void add_chat_template_options(CLI::App& app, EngineOptions& o) {
  const auto read = [](const std::string& flag, const auto& act) {
    try {
      act();
    } catch (const Error& e) {
      throw CLI::ValidationError(flag, e.what());
    }
  };
  app.add_option_function<std::string>(
         "--chat-template",
         [&o, read](const std::string& text) {
           read("--chat-template", [&] { o.chat_template = template_source(text); });
         },
         fmt::format("use this chat template instead of the model's: a Jinja file, a model whose template to use, or a "
                     "name: {}",
                     fmt::join(template_names(), ", ")))
      ->type_name("FILE|NAME")
      ->group(kTemplateGroup);
  app.add_option_function<std::string>(
         "--chat-template-kwargs",
         [&o, read](const std::string& text) { read("--chat-template-kwargs", [&] { set_template_kwargs(o, text); }); },
         "variables for the chat template, as a JSON object; those of a request win")
      ->type_name("JSON")
      ->group(kTemplateGroup);
}

}  // namespace quire
