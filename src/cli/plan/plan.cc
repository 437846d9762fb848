// quire plan: will a model fit, how fast will it be, for how many users, at what price. Reads headers only.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>

#include "base/cpu.h"
#include "base/error.h"
#include "base/text/quote.h"
#include "cli/advise/advise.h"
#include "cli/advise/workload.h"
#include "cli/commands.h"
#include "cli/flags/choice_flag.h"
#include "cli/flags/engine_options.h"
#include "cli/flags/parsed_by.h"
#include "cli/flags/weight_type.h"
#include "cli/hub/model_names.h"
#include "cli/output_file.h"
#include "cli/plan/check.h"
#include "cli/plan/cluster.h"
#include "cli/plan/quantities.h"
#include "cli/plan/ranks.h"
#include "cli/plan/report.h"
#include "cli/plan/svg.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/text_table.h"
#include "engine/dtype_names.h"
#include "engine/runtime.h"
#include "engine/tuner.h"
#include "kernels/kernels.h"
#include "load/report.h"
#include "model/registry.h"
#include "plan/machine_probe.h"
#include "plan/step_probe.h"

namespace quire {
namespace {

struct PlanOptions {
  EngineOptions engine;  // model, kernels, threads, types
  std::string files;     // of the model: what to open
  std::string shape, config, hardware = "this", weights, svg;
  int users = 1, context = 0, answer = 0, devices = 1;
  std::string ttft, tpot;
  double price = 0, efficiency = 1;
  bool probe = true, json = false, force = false, check = false, list = false, advise = false;
  PlanCheckOptions checks;
  std::string budget;
  AdviseOptions advice;  // without engine and budget
  RankFlags ranks;
  ClusterOptions cluster;  // without what is above
};

constexpr int kUsualContext = 4096, kUsualAnswer = 256;
std::optional<double> seconds_of_flag(const std::string& text) {
  double seconds = 0;
  if (text.empty()) return std::nullopt;
  read_seconds(text, seconds);
  return seconds;
}

// --weights: a type, or bits as "1.58".
WeightStorage parse_storage(const std::string& text) {
  double bits = 0;
  const char* const end = text.data() + text.size();
  if (const auto [stop, error] = std::from_chars(text.data(), end, bits); error == std::errc() && stop == end) {
    if (bits >= 0.5 && bits <= 64) return {.bits = bits};
    throw invalid("a weight has between 0.5 and 64 bits, not {}", text);
  }
  return {.type = parse_weight_type("--weights", text)};
}

ComputeForm compute_form(const PlanOptions& o, Activations usual, bool packed) {
  ComputeForm form{.activations = usual, .packed = packed};
  if (o.engine.activations != "auto") form.activations = *find_value(kActivationsNames, o.engine.activations);
  if (o.engine.kv_cache_dtype != "auto")
    form.kv = *find_value(kKvTypeNames, o.engine.kv_cache_dtype);
  else if (form.activations == Activations::kF32 && packed)
    form.kv = KvType::kF32;
  return form;
}

PlannedModel planned_model(const PlanOptions& o, const ComputeForm& form) {
  std::optional<WeightStorage> storage;
  if (!o.weights.empty()) storage = parse_storage(o.weights);
  if (!o.shape.empty())
    return plan_config(o.shape, parse_shape_config(o.shape), storage.value_or(WeightStorage{}), form);
  if (!o.config.empty()) return plan_config_file(o.config, storage, form);
  const Checkpoint checkpoint = Checkpoint::open(resolve_model(o.files));
  PlannedModel model = plan_checkpoint(checkpoint, form);
  checkpoint.check_unchanged();
  model.name = o.engine.model;
  return model;
}

PlanRequest request_of(const PlanOptions& o, const ModelConfig& config) {
  PlanRequest r{.users = o.users, .chunk = o.engine.max_num_batched_tokens};
  const int context = o.context > 0 ? o.context : std::min(kUsualContext, config.max_positions);
  r.answer = o.answer > 0 ? o.answer : std::max(1, std::min(kUsualAnswer, context / 2));
  if (r.answer >= context)
    throw invalid("--answer {} leaves no room for a prompt in --context {}; lower it", r.answer, context);
  r.prompt = context - r.answer;
  r.ttft = seconds_of_flag(o.ttft);
  r.tpot = seconds_of_flag(o.tpot);
  r.efficiency = o.efficiency;
  return r;
}

// This machine: its limits, and what steps of the model take on it, measured now.
void measure_this(const PlanOptions& o, PlanReport& report, PlannedMachine& machine) {
  Progress progress;
  progress.stage("measuring this machine");
  Team team(machine.threads);
  const Compute compute{choose_kernels(o.engine.kernels), team, report.form.activations};
  machine.rates = report.hardware.rates = MachineProbe(compute, units_of(report.model.work)).measure();
  if (!o.probe) return;
  try {
    progress.stage("measuring steps of a few layers");
    const std::string file = o.engine.tune == TuneMode::kOff ? "" : o.engine.tuning_file;
    StepProbe probe(compute, report.model, report.form.kv, file, static_cast<size_t>(machine.memory) / 2);
    machine.measured = probe.measure(o.checks.probe_runs);
  } catch (const Error& e) {
    report.model.assumptions.push_back(fmt::format("No step was measured: {}", e.what()));
  }
}

void run_check(const PlanOptions& o) {
  PlanCheck check;
  {
    Progress progress;
    check = check_plan(o.engine, o.checks, progress);
  }
  if (o.json)
    std::printf("%s\n", check_json(check).dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  else
    print_check(check);
}

void list_hardware() {
  TextTable table({"name", "machine", "memory GB", "GB/s", "f32 TOPS", "bf16", "int8", "fp8"}, 2);
  for (const Hardware& h : known_hardware()) {
    const auto tops = [&](size_t unit) { return fmt::format("{:.4g}", 2 * h.rates.multiply_adds[unit] / 1e12); };
    table.add({h.name, h.title, fmt::format("{:g}", h.memory / 1e9), fmt::format("{:g}", h.rates.bandwidth / 1e9),
               tops(0), tops(1), tops(2), tops(3)});
  }
  std::printf("%s", table.text().c_str());
}

void run_plan(const PlanOptions& o) {
  const bool here = o.hardware == "this";
  if (here && o.devices > 1) throw CLI::ValidationError("--devices", "is for data sheets; name one with --hardware");
  if (o.check) return run_check(o);
  if (!o.svg.empty()) check_output(o.svg, "--svg", o.force);
  PlanReport report;
  PlannedMachine machine;
  if (here) {
    const Machine mine = this_machine(o.engine);
    machine.memory = static_cast<double>(mine.memory);
    machine.threads = mine.threads;
    report.hardware = {.name = "this",
                       .title = fmt::format("{}, {} threads", cpu_name(), mine.threads),
                       .memory = machine.memory,
                       .activations = mine.activations,
                       .source = "measured"};
    report.measured = true;
  } else {
    report.hardware = times(find_hardware(o.hardware), o.devices);
    machine.memory = report.hardware.memory;
    machine.rates = report.hardware.rates;
  }
  report.form = compute_form(o, report.hardware.activations, here);
  report.model = planned_model(o, report.form);
  report.request = request_of(o, report.model.config);
  report.request.price_per_hour = o.price > 0 ? o.price * o.devices : report.hardware.price_per_hour;
  if (here) measure_this(o, report, machine);
  report.plan = make_plan(report.model, machine, report.form, report.request);
  if (o.ranks.ranks > 1)
    report.ranks = plan_ranks(report.model, report.plan, report.request, report.form.kv, rank_request(o.ranks));
  if (!o.cluster.file.empty()) {
    ClusterOptions cluster = o.cluster;
    cluster.slo = o.advice.slo;
    cluster.svg = o.svg;
    cluster.force = o.force;
    cluster.json = o.json;
    return run_cluster(cluster, report, machine);
  }
  if (!o.svg.empty()) write_svg(o.svg, plan_svg(report), o.force);
  if (o.json)
    std::printf("%s\n", plan_json(report).dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  else
    print_plan(report);
}

void add_check_options(CLI::App& command, PlanOptions& o) {
  constexpr const char* kGroup = "Check";
  command
      .add_flag("--check", o.check,
                "load MODEL, and compare predictions of steps and memory with measurements in the same run")
      ->group(kGroup);
  const auto list = [&](const char* name, std::vector<int>& values, const char* help, int least) {
    command.add_option(name, values, help)
        ->delimiter(',')
        ->check(between(least, 1 << 20))
        ->group(kGroup)
        ->capture_default_str();
  };
  list("--check-prompts", o.checks.prompts, "lengths of prompts to prefill", 1);
  list("--check-depths", o.checks.depths, "tokens already in the KV cache", 0);
  list("--check-batches", o.checks.batches, "numbers of sequences that decode together", 1);
  command.add_option("--check-repetitions", o.checks.repetitions, "pairs of a probe and a measurement")
      ->check(between(1, 1000))
      ->group(kGroup)
      ->capture_default_str();
}

CLI::Validator budget_check() {
  return {[](const std::string& text) {
            double seconds = 0;
            const std::string wrong = read_seconds(text, seconds);
            if (!wrong.empty() || (seconds >= kLeastAdviceBudget && seconds <= kMostAdviceBudget)) return wrong;
            return fmt::format("must be between {:g}s and {:g}s, not {}", kLeastAdviceBudget, kMostAdviceBudget, text);
          },
          "", ""};
}

void add_advise_options(CLI::App& command, PlanOptions& o) {
  constexpr const char* kGroup = "Advice";
  CLI::Option* const advise =
      command
          .add_flag(
              "--advise", o.advise,
              "load MODEL, measure which optimizations help a workload on this machine, and end with a command line")
          ->group(kGroup);
  for (const char* other : {"--users", "--context", "--answer", "--ttft", "--tpot", "--svg", "--price", "--efficiency",
                            "--devices", "--no-probe"})
    advise->excludes(command.get_option(other));
  const auto of_advice = [&](CLI::Option* option) { return option->needs(advise)->group(kGroup); };
  of_advice(command.add_option("--workload", o.advice.workload,
                               fmt::format("{}, or a JSON file (docs/planning.md)", fmt::join(kAdviceKinds, ", "))))
      ->type_name("NAME|FILE")
      ->capture_default_str();
  command
      .add_option("--slo", o.advice.slo,
                  "bounds on requests, as ttft=500ms,tpot=50ms,e2e=10s: 95 of 100 must keep them to be advised; with "
                  "--cluster, how many keep them")
      ->group(kGroup)
      ->check(parsed_by([](const std::string& text) {
        if (!parse_service_level(text).given()) throw invalid("must have the form ttft=500ms,tpot=50ms,e2e=10s");
      }));
  of_advice(command.add_option("--budget", o.budget, "longest time for measuring, as 180s (default: 180s)"))
      ->check(budget_check())
      ->type_name("TIME");
  of_advice(command.add_option("--allow-kl", o.advice.allow_kl,
                               "largest KL divergence from the default's predictions, in nats, that advice may cost"))
      ->check(between(0, 100))
      ->capture_default_str();
  of_advice(
      command.add_flag("--exhaustive", o.advice.exhaustive,
                       "also measure all combinations of the main options, whatever the budget (for comparison)"));
}

void run_advice(const PlanOptions& o) {
  AdviseOptions advice = o.advice;
  advice.engine = o.engine;
  advice.json = o.json;
  if (!o.budget.empty()) read_seconds(o.budget, advice.budget);
  run_advise(advice);
}

// The model's files on this machine, or its headers in a folder that is removed with them; only what loads the model downloads
// it whole.
std::unique_ptr<ModelHeaders> find_files(PlanOptions& o, bool offline) {
  const DownloadOptions download{.offline = offline};
  auto headers = o.check || o.advise ? nullptr : model_headers(o.engine.model, download);
  if (headers) {
    o.files = headers->path.string();
    return headers;
  }
  if (const auto local = local_copy(o.engine.model, download)) o.engine.model = local->path;
  o.files = o.engine.model;
  return nullptr;
}

void add_machine_options(CLI::App& command, PlanOptions& o) {
  constexpr const char* kGroup = "Machine";
  std::vector<std::string> names{"this"};
  for (const Hardware& h : known_hardware()) names.push_back(h.name);
  command
      .add_option("--hardware", o.hardware,
                  fmt::format("{}; or a JSON file (docs/planning.md)", fmt::join(names, ", ")))
      ->type_name("NAME|FILE")
      ->group(kGroup)
      ->capture_default_str();
  command.add_flag("--list-hardware", o.list, "list the known machines")->group(kGroup);
  command
      .add_option("--devices", o.devices,
                  "so many of them share the model: memory, bandwidth and rates add up, communication is not counted")
      ->check(between(1, 1 << 16))
      ->group(kGroup)
      ->capture_default_str();
  command.add_option("--efficiency", o.efficiency, "part of the machine's rates that is reached, for the least times")
      ->check(between(0.01, 1))
      ->group(kGroup)
      ->capture_default_str();
  command.add_option("--price", o.price, "price of one device for an hour, in any currency")
      ->check(between(1e-6, 1e6))
      ->group(kGroup);
  command.add_option("-t,--threads", o.engine.threads, "threads of this machine; 0: all usable cores")
      ->check(between(0, kMaxThreads))
      ->group(kGroup)
      ->capture_default_str();
  add_kernels_option(command, o.engine.kernels);
  command
      .add_flag_callback(
          "--no-probe", [&o] { o.probe = false; },
          "on this machine, measure its limits only, not the steps of a few layers")
      ->group(kGroup);
}

}  // namespace

void add_plan_command(CLI::App& app) {
  auto o = std::make_shared<PlanOptions>();
  o->engine.tuning_file = default_tuning_file();
  CLI::App* command = app.add_subcommand(
      "plan", "Say whether a model fits, how fast it will be, and for how many users, on this machine or another");
  constexpr const char* kModelGroup = "Model (one of these)";
  command
      ->add_option("MODEL,-m,--model", o->engine.model,
                   "a known name (`quire list`), a .gguf file, a Hugging Face directory or hf:ORG/REPO; only headers "
                   "are read")
      ->type_name("MODEL")
      ->group(kModelGroup);
  command
      ->add_option(
          "--shape", o->shape,
          fmt::format("a shape: {}; or numbers, as layers=32,hidden=4096,heads=32,kv-heads=8,ffn=14336; or both",
                      fmt::join(shape_names(), ", ")))
      ->check(parsed_by([](const std::string& text) { parse_shape_config(text); }))
      ->type_name("SHAPE")
      ->group(kModelGroup);
  command->add_option("--hf-config", o->config, "config.json of a Hugging Face model, without its other files")
      ->type_name("FILE")
      ->group(kModelGroup);
  command
      ->add_option("--weights", o->weights,
                   "how weights of a shape or configuration are stored: a type, as q4_k, or bits, as 1.58 (default: "
                   "bf16, or what the configuration says)")
      ->check(parsed_by([](const std::string& text) { parse_storage(text); }))
      ->type_name("TYPE|BITS");
  command->add_option("-u,--users", o->users, "users who always have one request running")
      ->check(between(1, kMostPlannedUsers))
      ->capture_default_str();
  command
      ->add_option("-c,--context", o->context, "tokens of each user, prompt and answer (default: 4096, or the model's)")
      ->check(between(2, 1 << 27));
  command->add_option("--answer", o->answer, "tokens of them that are generated (default: 256, or half)")
      ->check(between(1, 1 << 27));
  command->add_option("--ttft", o->ttft, "longest time to the first token, as 500ms")
      ->check(time_check())
      ->type_name("TIME");
  command->add_option("--tpot", o->tpot, "longest time for each further token, as 50ms")
      ->check(time_check())
      ->type_name("TIME");
  command
      ->add_option("--max-num-batched-tokens,--batch-size", o->engine.max_num_batched_tokens,
                   "most tokens of a prompt in one step")
      ->check(between(1, kMaxNumBatchedTokens))
      ->capture_default_str();
  std::vector<std::string> activations{"auto"}, types{"auto"};
  for (const auto& [value, name] : kActivationsNames) activations.emplace_back(name);
  for (const auto& [value, name] : kKvTypeNames) types.emplace_back(name);
  command->add_option("--activations", o->engine.activations, "data type that inputs of linear layers are rounded to")
      ->check(CLI::IsMember(activations))
      ->capture_default_str();
  command->add_option("--kv-cache-dtype", o->engine.kv_cache_dtype, "data type of the KV cache; auto: bf16")
      ->check(CLI::IsMember(types))
      ->capture_default_str();
  command->add_option("--svg", o->svg, "also draw the roofline and the memory")->type_name("FILE");
  command->add_flag("--force", o->force, "overwrite the file of --svg");
  command->add_flag("--json", o->json, "print the plan as a JSON object");
  add_machine_options(*command, *o);
  add_check_options(*command, *o);
  add_advise_options(*command, *o);
  add_cluster_options(*command, o->cluster);
  add_rank_plan_options(*command, o->ranks);
  command->callback([o, command] {
    if (o->list) return list_hardware();
    check_cluster_options(o->cluster);
    if (!o->advice.slo.empty() && !o->advise && o->cluster.file.empty())
      throw CLI::ValidationError("--slo", "needs --advise or --cluster");
    const int given = !o->engine.model.empty() + !o->shape.empty() + !o->config.empty();
    if (given == 0) throw CLI::RequiredError("MODEL, --shape or --hf-config");
    if (given > 1) throw CLI::ValidationError("MODEL", "excludes --shape and --hf-config; give one of them");
    if (!o->weights.empty() && !o->engine.model.empty())
      throw CLI::ValidationError("--weights", "is for --shape and --hf-config; MODEL says how its weights are stored");
    if (o->check && o->engine.model.empty()) throw CLI::ValidationError("--check", "needs MODEL, which it loads");
    if (o->check && o->hardware != "this") throw CLI::ValidationError("--check", "measures this machine, not another");
    if (o->advise && o->check) throw CLI::ValidationError("--advise", "excludes --check");
    if (o->advise && o->engine.model.empty()) throw CLI::ValidationError("--advise", "needs MODEL, which it loads");
    if (o->advise && o->hardware != "this")
      throw CLI::ValidationError("--advise", "measures this machine, not another");
    const std::unique_ptr<ModelHeaders> headers = find_files(*o, is_offline(*command));
    if (o->advise) return run_advice(*o);
    run_plan(*o);
  });
}

}  // namespace quire
