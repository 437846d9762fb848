// quire perplexity: by llama.cpp's protocol, so that results are comparable.

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags/engine_options.h"
#include "cli/logit_distance.h"
#include "cli/terminal/progress.h"
#include "cli/text/chunk_run.h"
#include "cli/text/text_chunks.h"

namespace quire {
namespace {

struct PerplexityOptions {
  EngineOptions engine;
  std::string file;
  int context = 512, chunks = -1;
  bool json = false;
};

// -log p(token), in nats.
double nll(std::span<const float> logits, TokenId token) {
  return log_sum_exp(logits) - logits[static_cast<size_t>(token)];
}

void run_perplexity(PerplexityOptions& o) {
  if (o.context < 3)
    throw invalid("--context must be at least 3, not {}: shorter chunks have no token to score", o.context);
  o.engine = one_chunk_at_a_time(std::move(o.engine), o.context);
  Progress progress;
  progress.stage("loading " + o.engine.model);
  LoadedModel model(o.engine, kScoredRows);
  const TextChunks text = read_chunks(model, o.file, o.context, o.chunks);
  const size_t chunks = text.count();

  SingleSequence sequence(model);
  // llama.cpp scores the second half of a chunk.
  const size_t first = text.size / 2;
  double sum = 0, squares = 0;
  size_t count = 0;
  std::vector<double> per_chunk;
  const auto start = std::chrono::steady_clock::now();
  progress.stage("scoring chunks");
  for (size_t c = 0; c < chunks; ++c) {
    const std::span<const TokenId> chunk = text.chunk(c);
    double chunk_sum = 0;
    size_t chunk_count = 0;
    ChunkRun run(sequence, chunk, first);
    while (const auto rows = run.next()) {
      for (size_t i = 0; i < rows->count; ++i) {
        const double loss = nll(rows->row(i), chunk[rows->position + i + 1]);
        chunk_sum += loss;
        squares += loss * loss;
        ++chunk_count;
      }
    }
    sum += chunk_sum;
    count += chunk_count;
    per_chunk.push_back(chunk_sum / static_cast<double>(chunk_count));
    progress.step(c + 1, chunks, fmt::format("perplexity so far {:.4f}", std::exp(sum / static_cast<double>(count))));
  }
  progress.clear();
  if (!std::isfinite(sum)) throw invalid("{}: the log-probability of the text is not finite", o.engine.model);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto n = static_cast<double>(count);
  const double mean = sum / n, perplexity = std::exp(mean),
               error = n > 1 ? perplexity * std::sqrt(std::max(0.0, squares / n - mean * mean) / (n - 1)) : 0;
  if (o.json) {
    const nlohmann::ordered_json out = {{"model", model.info.name},
                                        {"kernels", model.info.kernels},
                                        {"activations", model.info.activations},
                                        {"kv_cache_dtype", model.info.kv_cache_dtype},
                                        {"context", o.context},
                                        {"chunks", chunks},
                                        {"tokens", count},
                                        {"mean_nll", mean},
                                        {"perplexity", perplexity},
                                        {"error", error},
                                        {"chunk_mean_nll", per_chunk},
                                        {"seconds", seconds}};
    std::printf("%s\n", out.dump(2).c_str());
  } else {
    std::printf("perplexity %.5f +/- %.5f (%zu chunks of %d tokens, %s activations, %.1f s)\n", perplexity, error,
                chunks, o.context, model.info.activations.c_str(), seconds);
  }
}

}  // namespace

void add_perplexity_command(CLI::App& app) {
  auto o = std::make_shared<PerplexityOptions>();
  CLI::App* command = app.add_subcommand(
      "perplexity",
      "Measure the perplexity of a text as llama.cpp does: in chunks of -c tokens, scoring the second half of each");
  add_model_options(*command, o->engine);
  add_stage_options(*command, o->engine);
  for (const char* replaced : {"--max-model-len", "--max-num-batched-tokens"})
    command->remove_option(command->get_option(replaced));
  command->add_option("-f,--file", o->file, "text file (UTF-8)")->type_name("FILE")->required();
  command->add_option("-c,--context", o->context, "tokens per chunk")->capture_default_str();
  command->add_option("--chunks", o->chunks, "number of chunks to score; -1: all")
      ->check(check_chunk_count())
      ->capture_default_str();
  command->add_flag("--json", o->json, "print the result as a JSON object");
  command->callback([o] { run_perplexity(*o); });
}

}  // namespace quire
