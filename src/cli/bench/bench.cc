// quire bench: prefill and decode rates, compared with the machine's limits measured in the same run.

#include "cli/bench/bench.h"

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "cli/bench/report.h"
#include "cli/commands.h"
#include "cli/flags/choice_flag.h"
#include "cli/flags/engine_options.h"
#include "cli/flags/process_flags.h"
#include "engine/ranks/follow.h"
#include "model/adapter/random_adapter.h"

namespace quire {
namespace {

struct BenchOptions {
  EngineOptions engine;
  ProcessFlags processes;
  std::vector<int> prompts = {512}, generate = {128}, depths = {0}, batches = {1};
  int repetitions = 5, adapters = 0, adapter_rank = 16;
  std::vector<Tensor> adapter_modules;  // empty: all
  bool profile = false, quality = false, json = false;
  std::string text;
  int quality_tokens = 1024;
};

// As PEFT names them.
constexpr NameTable<Tensor, 7> kAdapterModuleNames{{{Tensor::kQ, "q_proj"},
                                                    {Tensor::kK, "k_proj"},
                                                    {Tensor::kV, "v_proj"},
                                                    {Tensor::kO, "o_proj"},
                                                    {Tensor::kGate, "gate_proj"},
                                                    {Tensor::kUp, "up_proj"},
                                                    {Tensor::kDown, "down_proj"}}};

std::vector<BenchTest> tests_of(const BenchOptions& o) {
  std::vector<BenchTest> tests;
  const auto add = [&](const BenchTest& test) {
    tests.push_back(test);
    if (o.adapters == 0) return;
    tests.push_back(test);
    tests.back().adapters = o.adapters;
  };
  for (const int depth : o.depths) {
    for (const int tokens : o.prompts) {
      if (tokens > 0) add({BenchTest::Kind::kPrefill, tokens, depth, 1});
    }
    for (const int tokens : o.generate) {
      for (const int batch : o.batches) {
        if (tokens > 0) add({BenchTest::Kind::kDecode, tokens, depth, batch});
      }
    }
  }
  return tests;
}

// They must outlive the decoder's last step.
std::vector<std::vector<Adapter>> random_adapters(LoadedModel& model, const BenchOptions& o) {
  std::vector<std::vector<Adapter>> adapters;
  for (int i = 0; i < o.adapters; ++i) {
    adapters.push_back(model.load_by_rank([&](const Weights& weights, Backend& backend) {
      return random_adapter(model.target.config, weights, o.adapter_modules, o.adapter_rank, static_cast<uint64_t>(i),
                            backend, model.runtime.team);
    }));
    if (adapters[0][0].changes.empty())
      throw unsupported("{} has no linears that these adapters can change", model.info.name);
  }
  for (int i = 0; i < o.adapters; ++i) model.set_adapter(i, adapters[static_cast<size_t>(i)]);
  return adapters;
}

void measure_speed(const BenchOptions& o, bool follows, std::vector<BenchTest> tests, Progress& progress,
                   BenchReport& report) {
  EngineOptions engine = o.engine;
  engine.max_num_seqs = *std::max_element(o.batches.begin(), o.batches.end());
  engine.max_num_batched_tokens = std::max(engine.max_num_batched_tokens, engine.max_num_seqs);
  if (engine.max_model_len == 0) {
    for (const BenchTest& test : tests) engine.max_model_len = std::max(engine.max_model_len, test.depth + test.tokens);
  }
  if (o.adapters > 0) {
    engine.max_adapters = o.adapters;
    engine.max_adapter_rank = o.adapter_rank;
  }
  reserve_cache(engine, tests);
  if (follows) return follow(engine);
  progress.stage("loading " + engine.model);
  LoadedModel model(engine);
  if (!model.info.generates) {
    std::erase_if(tests, [](const BenchTest& test) { return test.kind == BenchTest::Kind::kDecode; });
    if (tests.empty()) throw invalid("{} does not generate text; measure prompts (-p)", engine.model);
  }
  if (o.profile && model.plan.shares_layers())
    throw unsupported("--profile shows the operations of one stage; leave out --gpu-layers {}", model.plan.gpu_layers);
  const std::vector<std::vector<Adapter>> adapters = random_adapters(model, o);
  ModelBench bench(model, tests, progress, adapters.empty() ? nullptr : &adapters[0][0]);
  report.model = model.info;
  report.results = bench.run(o.repetitions);
  if (!o.profile) return;
  report.profiles = bench.profile(o.repetitions);
  report.empty_loop = bench.empty_loop_seconds();
}

void run_bench(BenchOptions o) {
  const bool follows = connect_processes(o.processes, o.engine);
  if (o.engine.processes && (o.quality || o.adapters > 0))
    throw unsupported("--quality and --adapters work in one process only; use --ranks threads");
  if (o.engine.pipeline_parallel_size > 1 && o.profile)
    throw unsupported("--profile shows the operations of one stage; leave out --pipeline-parallel-size {}",
                      o.engine.pipeline_parallel_size);
  const std::vector<BenchTest> tests = tests_of(o);
  if (o.quality && o.text.empty()) throw CLI::RequiredError("--text (for --quality)");
  if (tests.empty() && !o.quality) throw invalid("-p 0 -n 0 leaves nothing to measure; add --quality or give lengths");
  BenchReport report;
  {
    Progress progress;
    if (!tests.empty()) measure_speed(o, follows, tests, progress, report);
    if (o.quality) report.quality = measure_quality(o.engine, o.text, o.quality_tokens, progress);
  }
  if (follows) return;
  if (o.json)
    std::printf("%s\n", to_json(report).dump(2).c_str());
  else
    print_tables(report);
}

}  // namespace

void add_bench_command(CLI::App& app) {
  auto o = std::make_shared<BenchOptions>();
  CLI::App* command =
      app.add_subcommand("bench", "Measure prefill and decode speed, and compare it with the limits of this machine");
  add_model_options(*command, o->engine);
  add_stage_options(*command, o->engine);
  add_process_options(*command, o->processes, o->engine);
  command->get_option("--model")->required(false);  // subcommands have their own, or none
  const auto list = [&](const char* name, std::vector<int>& values, const char* help, int least) {
    command->add_option(name, values, help)->delimiter(',')->check(CLI::Range(least, 1 << 24))->capture_default_str();
  };
  list("-p,--prompt", o->prompts, "prompt lengths to prefill, as 512,4096; 0: none", 0);
  list("-n,--generate", o->generate, "numbers of tokens to decode; 0: none", 0);
  list("-d,--depth", o->depths, "tokens already in the KV cache, for prefill and decode", 0);
  list("-b,--batch", o->batches, "numbers of sequences that decode together", 1);
  command->add_option("-r,--repetitions", o->repetitions, "samples per test; tests take turns, the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command
      ->add_option("--adapters", o->adapters,
                   "measure each test also with so many random LoRA adapters, one a sequence in turn; 0: without")
      ->check(CLI::Range(0, kMaxAdapters))
      ->capture_default_str();
  command->add_option("--adapter-rank", o->adapter_rank, "their rank")
      ->check(CLI::Range(1, kMaxAdapterRank))
      ->capture_default_str();
  add_choices(*command, "--adapter-modules", o->adapter_modules, kAdapterModuleNames,
              "the linears that they change, as q_proj,v_proj; by default all that adapters can change");
  add_run_ahead_option(*command, o->engine);
  command->add_flag("--json", o->json, "print the results as a JSON object");
  constexpr const char* kMoreGroup = "Profile and quality";
  command
      ->add_flag("--profile", o->profile, "also show the time of each operation in a step, and its share of the limit")
      ->group(kMoreGroup);
  command
      ->add_flag("--quality", o->quality,
                 "also compare the output with --activations f32 --kv-cache-dtype f32: KL divergence and perplexity")
      ->group(kMoreGroup);
  command->add_option("--text", o->text, "text file for --quality (UTF-8)")
      ->type_name("FILE")
      ->check(CLI::ExistingFile)
      ->group(kMoreGroup);
  command->add_option("--quality-tokens", o->quality_tokens, "tokens of the text to compare, from its beginning")
      ->check(CLI::Range(2, 1 << 20))
      ->group(kMoreGroup)
      ->capture_default_str();
  command->require_subcommand(0, 1);
  for (const auto add : kBenchCommands) add(*command);
  command->callback([o, command] {
    if (!command->get_subcommands().empty()) return;
    if (o->engine.model.empty()) throw CLI::RequiredError("--model");
    run_bench(*o);
  });
}

}  // namespace quire
