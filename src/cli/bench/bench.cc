// quire bench: prefill and decode rates, beside what this machine could do in the same minute.

#include "cli/bench/bench.h"

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "cli/bench/report.h"
#include "cli/commands.h"
#include "cli/engine_options.h"

namespace quire {
namespace {

struct BenchOptions {
  EngineOptions engine;
  std::vector<int> prompts = {512}, generate = {128}, depths = {0}, batches = {1};
  int repetitions = 5;
  bool profile = false, quality = false, json = false;
  std::string text;
  int quality_tokens = 1024;
};

std::vector<BenchTest> tests_of(const BenchOptions& o) {
  std::vector<BenchTest> tests;
  for (const int depth : o.depths) {
    for (const int tokens : o.prompts) {
      if (tokens > 0) tests.push_back({BenchTest::Kind::kPrefill, tokens, depth, 1});
    }
    for (const int tokens : o.generate) {
      for (const int batch : o.batches) {
        if (tokens > 0) tests.push_back({BenchTest::Kind::kDecode, tokens, depth, batch});
      }
    }
  }
  return tests;
}

void measure_speed(const BenchOptions& o, const std::vector<BenchTest>& tests, BenchReport& report) {
  EngineOptions engine = o.engine;
  engine.max_num_seqs = *std::max_element(o.batches.begin(), o.batches.end());
  engine.max_num_batched_tokens = std::max(engine.max_num_batched_tokens, engine.max_num_seqs);
  if (engine.max_model_len == 0) {
    for (const BenchTest& test : tests) engine.max_model_len = std::max(engine.max_model_len, test.depth + test.tokens);
  }
  LoadedModel model(engine);
  ModelBench bench(model, tests);
  report.model = model.info;
  report.results = bench.run(o.repetitions);
  if (!o.profile) return;
  report.profiles = bench.profile(o.repetitions);
  report.empty_loop = bench.empty_loop_seconds();
}

void run_bench(const BenchOptions& o) {
  const std::vector<BenchTest> tests = tests_of(o);
  if (o.quality && o.text.empty()) throw CLI::RequiredError("--quality: --text");
  if (tests.empty() && !o.quality) throw invalid("-p 0 and -n 0 leave nothing to measure");
  BenchReport report;
  if (!tests.empty()) measure_speed(o, tests, report);
  if (o.quality) report.quality = measure_quality(o.engine, o.text, o.quality_tokens);
  if (o.json)
    std::printf("%s\n", to_json(report).dump(2).c_str());
  else
    print_tables(report);
}

}  // namespace

void add_bench_command(CLI::App& app) {
  auto o = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand(
      "bench", "Measure prefill and decode, beside the machine's read bandwidth and multiply rate in the same run");
  add_model_options(*command, o->engine);
  command->get_option("--model")->required(false);  // the commands below have their own, or none
  const auto list = [&](const char* name, std::vector<int>& values, const char* what, int least) {
    command->add_option(name, values, what)->delimiter(',')->check(CLI::Range(least, 1 << 24))->capture_default_str();
  };
  list("-p,--prompt", o->prompts, "prompt lengths (512,4096,8192); 0: none", 0);
  list("-n,--generate", o->generate, "tokens to decode; 0: none", 0);
  list("-d,--depth", o->depths, "tokens already in the cache, for prefill and decode", 0);
  list("-b,--batch", o->batches, "sequences that decode together", 1);
  command->add_option("-r,--repetitions", o->repetitions, "samples of each test, taken in turns; the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_flag("--profile", o->profile,
                    "where the time of a step goes, operation by operation, beside each one's limit");
  command->add_flag("--quality", o->quality,
                    "what rounding costs: KL divergence and perplexity beside --activations f32 --kv-cache-dtype f32");
  command->add_option("--text", o->text, "the text file for --quality")->check(CLI::ExistingFile);
  command->add_option("--quality-tokens", o->quality_tokens, "of the text, from its beginning")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command->add_flag("--json", o->json, "print one JSON object");
  command->require_subcommand(0, 1);
  for (const auto add : kBenchCommands) add(*command);
  command->callback([o, command] {
    if (!command->get_subcommands().empty()) return;
    if (o->engine.model.empty()) throw CLI::RequiredError("--model");
    run_bench(*o);
  });
}

}  // namespace quire
