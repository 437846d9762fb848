// quire bench: prefill and decode rates, beside what this machine could do in the same minute.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/cpu.h"
#include "base/error.h"
#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "engine/loaded_model.h"
#include "kernels/probe.h"

namespace quire {
namespace {

struct BenchOptions {
  EngineOptions engine;
  std::vector<int> prompts = {512}, generate = {128}, depths = {0}, batches = {1};
  int repetitions = 5;
  std::string output = "md";
};

struct Result {
  std::string test;
  int tokens = 0, depth = 0, batch = 0;
  std::vector<double> rates;  // tokens per second, of all sequences
  double limit = 0;           // what the memory (decode) or the multipliers (prefill) allow, in the same unit
  double bytes_per_step = 0;  // decode
  double bandwidth = 0, multiply_rate = 0;  // probed beside this test

  double median() const {
    std::vector<double> sorted = rates;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

// Sequences with pages of their own, fed with random tokens: as llama-bench does, without sampling.
class Bench {
 public:
  explicit Bench(LoadedModel& model, const Compute& compute) : model_(model), compute_(compute) {}

  Result prefill(int tokens, int depth, int repetitions) {
    Result r{.test = "prefill", .tokens = tokens, .depth = depth, .batch = 1, .rates = {}};
    reserve(1, depth + tokens);
    run(1, 0, std::max(1, depth));  // warm
    if (depth > 0) run(1, 0, depth);
    for (int i = 0; i < repetitions; ++i) r.rates.push_back(tokens / seconds([&] { run(1, depth, tokens); }));
    measure_limits(r);
    r.limit = r.multiply_rate / macs_per_prompt_token(depth + tokens / 2.0);
    return r;
  }

  Result decode(int tokens, int depth, int batch, int repetitions) {
    Result r{.test = "decode", .tokens = tokens, .depth = depth, .batch = batch, .rates = {}};
    reserve(batch, depth + tokens);
    for (int s = 0; s < batch && depth > 0; ++s) run_one(s, 0, depth);
    const auto generate = [&] {
      for (int i = 0; i < tokens; ++i) run(batch, depth + i, 1);
    };
    run(batch, depth, 1);  // warm
    for (int i = 0; i < repetitions; ++i) r.rates.push_back(batch * tokens / seconds(generate));
    measure_limits(r);
    const double context = depth + tokens / 2.0;
    r.bytes_per_step = static_cast<double>(model_.info.decode_bytes) +
                       batch * context * static_cast<double>(model_.info.kv_bytes_per_token);
    r.limit = std::min(batch * r.bandwidth / r.bytes_per_step,
                       r.multiply_rate / (macs_per_prompt_token(context) +
                                          static_cast<double>(model_.config.vocab) * model_.config.hidden));
    return r;
  }

 private:
  template <class Body>
  static double seconds(const Body& body) {
    const auto start = std::chrono::steady_clock::now();
    body();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void measure_limits(Result& r) {
    r.bandwidth = read_bandwidth(model_.team, 3);
    r.multiply_rate = multiply_rate(compute_, 3);
  }

  // Of the linears, and of attention at this many tokens of context; the output head only serves the last token.
  double macs_per_prompt_token(double context) const {
    const ModelConfig& c = model_.config;
    const double layer = static_cast<double>(c.hidden) * (c.heads + 2 * c.kv_heads) * c.head_dim +
                         static_cast<double>(c.heads) * c.head_dim * c.hidden + 3.0 * c.hidden * c.ffn;
    return c.layers * (layer + 2.0 * c.heads * c.head_dim * context);
  }

  void reserve(int sequences, int tokens) {
    if (tokens > model_.info.max_model_len)
      throw invalid("{} tokens do not fit the context of {}; lower -p, -n or -d", tokens, model_.info.max_model_len);
    const int each = (tokens + kPageTokens - 1) / kPageTokens;
    if (each * sequences > model_.info.kv_pages)
      throw no_resource("{} sequences of {} tokens need {} pages, there are {} (--kv-cache-size)", sequences, tokens,
                        each * sequences, model_.info.kv_pages);
    pages_.assign(static_cast<size_t>(sequences), std::vector<int32_t>(static_cast<size_t>(each)));
    for (int s = 0; s < sequences; ++s)
      std::iota(pages_[static_cast<size_t>(s)].begin(), pages_[static_cast<size_t>(s)].end(), s * each);
  }

  TokenId token(int sequence, int position) const {
    return static_cast<TokenId>(
        (static_cast<uint64_t>(sequence) * 7919 + static_cast<uint64_t>(position) * 104729 + 17) %
        static_cast<uint64_t>(model_.config.vocab));
  }

  void run_one(int sequence, int from, int count) {
    const int most = model_.decoder->limits().max_rows;
    for (int at = from; at < from + count; at += most) {
      rows_.clear();
      const int n = std::min(most, from + count - at);
      for (int i = 0; i < n; ++i) rows_.push_back({token(sequence, at + i), at + i, at + i + 1 == from + count});
      const Span span{0, n, at, pages_[static_cast<size_t>(sequence)]};
      model_.decoder->forward({rows_, {&span, 1}});
    }
  }

  // The next `count` tokens of each of the first `sequences` sequences.
  void run(int sequences, int from, int count) {
    if (count > 1) {
      for (int s = 0; s < sequences; ++s) run_one(s, from, count);
      return;
    }
    rows_.clear();
    spans_.clear();
    for (int s = 0; s < sequences; ++s) {
      spans_.push_back({s, 1, from, pages_[static_cast<size_t>(s)]});
      rows_.push_back({token(s, from), from, true});
    }
    model_.decoder->forward({rows_, spans_});
  }

  LoadedModel& model_;
  Compute compute_;
  std::vector<std::vector<int32_t>> pages_;
  std::vector<Row> rows_;
  std::vector<Span> spans_;
};

void print(const std::vector<Result>& results, const ModelInfo& info, const std::string& format) {
  if (format == "json") {
    auto list = nlohmann::ordered_json::array();
    for (const Result& r : results) {
      const auto [low, high] = std::minmax_element(r.rates.begin(), r.rates.end());
      list.push_back({{"test", r.test},
                      {"tokens", r.tokens},
                      {"depth", r.depth},
                      {"batch", r.batch},
                      {"tokens_per_second", r.median()},
                      {"min", *low},
                      {"max", *high},
                      {"samples", r.rates},
                      {"limit_tokens_per_second", r.limit},
                      {"of_limit", r.median() / r.limit},
                      {"bytes_per_step", r.bytes_per_step},
                      {"read_bandwidth", r.bandwidth},
                      {"multiply_adds_per_second", r.multiply_rate}});
    }
    const nlohmann::ordered_json out = {{"model", info.name},
                                        {"quantization", info.quantization},
                                        {"parameters", info.parameters},
                                        {"weight_bytes", info.weight_bytes},
                                        {"cpu", cpu_name()},
                                        {"kernels", info.kernels},
                                        {"activations", info.activations},
                                        {"kv_cache_dtype", info.kv_cache_dtype},
                                        {"threads", info.threads},
                                        {"results", list}};
    std::printf("%s\n", out.dump(2).c_str());
    return;
  }
  std::printf("%s: %s, %.1f M parameters, %.1f MiB; %s, %s kernels, %s activations, %s KV cache, %d threads\n\n",
              info.name.c_str(), info.quantization.c_str(), static_cast<double>(info.parameters) / 1e6,
              static_cast<double>(info.weight_bytes) / (1 << 20), cpu_name().c_str(), info.kernels.c_str(),
              info.activations.c_str(), info.kv_cache_dtype.c_str(), info.threads);
  std::printf(
      "| test | batch | depth | tok/s | min | max | limit | of it | MB a step | machine in this run "
      "|\n|---|--:|--:|--:|--:|--:|--:|--:|--:|---|\n");
  for (const Result& r : results) {
    const auto [low, high] = std::minmax_element(r.rates.begin(), r.rates.end());
    std::printf("| %s %d | %d | %d | %.1f | %.1f | %.1f | %.0f | %.0f %% | %.1f | %.1f GB/s, %.0f GMAC/s |\n",
                r.test.c_str(), r.tokens, r.batch, r.depth, r.median(), *low, *high, r.limit,
                100 * r.median() / r.limit, r.bytes_per_step / 1e6, r.bandwidth / 1e9, r.multiply_rate / 1e9);
  }
}

void run_bench(BenchOptions& o) {
  if (o.repetitions < 1) throw invalid("--repetitions {}: at least 1", o.repetitions);
  for (const auto* list : {&o.prompts, &o.generate, &o.depths, &o.batches}) {
    for (const int value : *list) {
      if (value < (list == &o.batches ? 1 : 0)) throw invalid("{}: lengths are at least 0, batches at least 1", value);
    }
  }
  o.engine.max_num_seqs = std::max(1, *std::max_element(o.batches.begin(), o.batches.end()));
  if (o.engine.max_model_len == 0) {
    o.engine.max_model_len = *std::max_element(o.depths.begin(), o.depths.end()) +
                             std::max({*std::max_element(o.prompts.begin(), o.prompts.end()),
                                       *std::max_element(o.generate.begin(), o.generate.end()), 1});
  }
  LoadedModel model(o.engine);
  Activations activations = model.info.activations == "int8"   ? Activations::kInt8
                            : model.info.activations == "bf16" ? Activations::kBf16
                                                               : Activations::kF32;
  Bench bench(model, {choose_kernels(o.engine.kernels), model.team, activations});
  std::vector<Result> results;
  for (const int depth : o.depths) {
    for (const int tokens : o.prompts) {
      if (tokens > 0) results.push_back(bench.prefill(tokens, depth, o.repetitions));
    }
    for (const int tokens : o.generate) {
      for (const int batch : o.batches) {
        if (tokens > 0) results.push_back(bench.decode(tokens, depth, batch, o.repetitions));
      }
    }
  }
  print(results, model.info, o.output);
}

}  // namespace

void add_bench_command(CLI::App& app) {
  auto o = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand(
      "bench", "Measure prefill and decode, beside the machine's read bandwidth and multiply rate in the same run");
  add_engine_options(*command, o->engine);
  command->get_option("--model")->required(false);  // the commands below have their own, or none
  command->add_option("-p,--prompt", o->prompts, "prompt lengths; 0: none")->delimiter(',')->capture_default_str();
  command->add_option("-n,--generate", o->generate, "tokens to decode; 0: none")->delimiter(',')->capture_default_str();
  command->add_option("-d,--depth", o->depths, "tokens already in the cache")->delimiter(',')->capture_default_str();
  command->add_option("-b,--batch", o->batches, "sequences that decode together")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("-r,--repetitions", o->repetitions, "samples of each test; the median counts")
      ->capture_default_str();
  command->add_option("-o,--output", o->output, "md or json")
      ->check(CLI::IsMember({"md", "json"}))
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
