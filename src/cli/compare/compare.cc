// quire compare: what a model lost against another, such as the file that it was quantized from.

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/compare/distance_tally.h"
#include "cli/flags/engine_options.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/text_table.h"
#include "cli/text/chunk_run.h"
#include "cli/text/text_chunks.h"

namespace quire {
namespace {

struct CompareFlags {
  EngineOptions engine;
  std::string base, base_activations, base_kv_cache_dtype, file;
  int context = 512, chunks = -1, from = -1;
  bool json = false;
};

constexpr size_t kParts = 8;  // of a chunk, in the table by position

// The positions of part i of `kParts`.
std::pair<size_t, size_t> part_of(size_t i, size_t first, size_t end) {
  const size_t length = end - first;
  return {first + i * length / kParts, first + (i + 1) * length / kParts};
}

std::string spell_side(const ModelInfo& info) {
  return fmt::format("{} ({} activations, {} KV cache)", info.name, info.activations, info.kv_cache_dtype);
}

nlohmann::ordered_json estimate_json(const Estimate& e) { return {{"value", e.value}, {"error", e.error}}; }

nlohmann::ordered_json distance_json(const DistanceSummary& s) {
  return {{"tokens", s.tokens},
          {"mean_kl", estimate_json(s.mean_kl)},
          {"median_kl", s.median_kl},
          {"p90_kl", s.p90_kl},
          {"p99_kl", s.p99_kl},
          {"max_kl", s.max_kl},
          {"same_top", estimate_json(s.same_top)},
          {"right_to_wrong", s.right_to_wrong},
          {"wrong_to_right", s.wrong_to_right},
          {"base_perplexity", estimate_json(s.reference_perplexity)},
          {"perplexity", estimate_json(s.perplexity)},
          {"perplexity_change", estimate_json(s.perplexity_change)}};
}

struct Comparing {
  ModelInfo model, base;
  size_t chunks = 0, first = 0, end = 0;  // end: after the last position with logits
  DistanceTally tally;
};

void print_text(const Comparing& c) {
  const DistanceSummary s = c.tally.summary();
  std::printf("model %s\nbase  %s\n%zu tokens: positions %zu to %zu of %zu chunks\n\n", spell_side(c.model).c_str(),
              spell_side(c.base).c_str(), s.tokens, c.first, c.end - 1, c.chunks);
  std::printf("KL divergence    mean %.6f +/- %.6f, median %.6f, 90 %% %.5f, 99 %% %.5f, max %.4f\n", s.mean_kl.value,
              s.mean_kl.error, s.median_kl, s.p90_kl, s.p99_kl, s.max_kl);
  std::printf("same top token   %.2f +/- %.2f %%\n", 100 * s.same_top.value, 100 * s.same_top.error);
  std::printf("flips            right to wrong %.2f %%, wrong to right %.2f %%\n", 100 * s.right_to_wrong,
              100 * s.wrong_to_right);
  std::printf("perplexity       %.4f +/- %.4f, base %.4f +/- %.4f, change %+.4f +/- %.4f\n\n", s.perplexity.value,
              s.perplexity.error, s.reference_perplexity.value, s.reference_perplexity.error, s.perplexity_change.value,
              s.perplexity_change.error);
  TextTable table({"positions", "tokens", "mean KL", "median", "99 %", "same top", "perplexity change"}, 1);
  for (size_t i = 0; i < kParts; ++i) {
    const auto [begin, end] = part_of(i, c.first, c.end);
    const DistanceSummary part = c.tally.summary(begin, end);
    if (part.tokens == 0) continue;
    table.add({fmt::format("{}-{}", begin, end - 1), fmt::format("{}", part.tokens),
               fmt::format("{:.6f}", part.mean_kl.value), fmt::format("{:.6f}", part.median_kl),
               fmt::format("{:.5f}", part.p99_kl), fmt::format("{:.2f} %", 100 * part.same_top.value),
               fmt::format("{:+.4f}", part.perplexity_change.value)});
  }
  std::fputs(table.text().c_str(), stdout);
}

void print_json(const Comparing& c) {
  nlohmann::ordered_json out = distance_json(c.tally.summary());
  const auto side = [](const ModelInfo& info) {
    return nlohmann::ordered_json{
        {"name", info.name}, {"activations", info.activations}, {"kv_cache_dtype", info.kv_cache_dtype}};
  };
  out["model"] = side(c.model);
  out["base"] = side(c.base);
  out["chunks"] = c.chunks;
  for (size_t i = 0; i < kParts; ++i) {
    const auto [begin, end] = part_of(i, c.first, c.end);
    const DistanceSummary part = c.tally.summary(begin, end);
    if (part.tokens == 0) continue;
    nlohmann::ordered_json row = distance_json(part);
    row["positions"] = {begin, end - 1};
    out["by_position"].push_back(row);
  }
  std::printf("%s\n", out.dump(2).c_str());
}

EngineOptions base_options(const CompareFlags& o) {
  EngineOptions base = o.engine;
  if (!o.base.empty()) base.model = o.base;
  if (!o.base_activations.empty()) base.activations = o.base_activations;
  if (!o.base_kv_cache_dtype.empty()) base.kv_cache_dtype = o.base_kv_cache_dtype;
  return base;
}

// The text in chunks, as both models read it.
TextChunks read_same_chunks(const CompareFlags& o, const LoadedModel& model, const LoadedModel& base) {
  if (base.target.config.vocab != model.target.config.vocab)
    throw invalid("{} has {} tokens in its vocabulary, {} has {}; only models with one vocabulary can be compared",
                  model.info.name, model.target.config.vocab, base.info.name, base.target.config.vocab);
  TextChunks text = read_chunks(model, o.file, o.context, o.chunks);
  if (read_chunks(base, o.file, o.context, o.chunks).ids != text.ids)
    throw invalid("{} and {} split {} into other tokens; only models with one tokenizer can be compared",
                  model.info.name, base.info.name, o.file);
  return text;
}

void compare_chunk(SingleSequence& model, SingleSequence& base, std::span<const TokenId> chunk, size_t first,
                   DistanceTally& tally) {
  ChunkRun expected(base, chunk, first), got(model, chunk, first);
  while (const auto rows = expected.next()) {
    const auto other = got.next();
    for (size_t i = 0; i < rows->count; ++i) {
      const size_t position = rows->position + i;
      tally.add(rows->row(i), other->row(i), chunk[position + 1], position);
    }
  }
}

void run_compare(CompareFlags& o) {
  if (o.from >= o.context - 1)
    throw CLI::ValidationError("--from",
                               fmt::format("must be at most {}, the last position of a chunk of {} that has a "
                                           "next token, not {}",
                                           o.context - 2, o.context, o.from));
  if (o.base.empty() && o.base_activations.empty() && o.base_kv_cache_dtype.empty())
    throw CLI::RequiredError("--base, --base-activations or --base-kv-cache-dtype");
  o.engine = one_chunk_at_a_time(std::move(o.engine), o.context);
  Comparing c;
  {
    Progress progress;
    const EngineOptions base_engine = base_options(o);
    const auto runtime = std::make_shared<Runtime>(o.engine);
    progress.stage("loading " + base_engine.model);
    LoadedModel base(base_engine, kScoredRows, runtime);
    progress.stage("loading " + o.engine.model);
    LoadedModel model(o.engine, kScoredRows, runtime);
    const TextChunks text = read_same_chunks(o, model, base);
    c.model = model.info;
    c.base = base.info;
    c.chunks = text.count();
    c.first = o.from >= 0 ? static_cast<size_t>(o.from) : text.size / 2;
    c.end = text.size - 1;
    SingleSequence of_model(model), of_base(base);
    progress.stage("comparing chunks");
    for (size_t i = 0; i < c.chunks; ++i) {
      compare_chunk(of_model, of_base, text.chunk(i), c.first, c.tally);
      progress.step(i + 1, c.chunks);
    }
  }
  const DistanceSummary all = c.tally.summary();
  if (!std::isfinite(all.mean_kl.value) || !std::isfinite(all.perplexity.value))
    throw invalid("the logits of {} or {} are not finite", c.model.name, c.base.name);
  if (o.json) return print_json(c);
  print_text(c);
}

}  // namespace

void add_compare_command(CLI::App& app) {
  auto o = std::make_shared<CompareFlags>();
  CLI::App* command = app.add_subcommand(
      "compare", "Measure how far a model's predictions are from those of another, or of itself with other settings");
  add_model_options(*command, o->engine);
  for (const char* replaced : {"--max-model-len", "--max-num-batched-tokens"})
    command->remove_option(command->get_option(replaced));
  command->add_option("-b,--base", o->base, "the model to compare with; default: the same")->type_name("MODEL");
  add_activations(*command, "--base-activations", o->base_activations, "--activations of the base; default: the same");
  add_kv_type(*command, "--base-kv-cache-dtype", o->base_kv_cache_dtype,
              "--kv-cache-dtype of the base; default: the same");
  command->add_option("-f,--file", o->file, "text file (UTF-8)")->type_name("FILE")->required();
  command->add_option("-c,--context", o->context, "tokens per chunk")
      ->check(between(3, std::numeric_limits<int>::max()))
      ->capture_default_str();
  command->add_option("--chunks", o->chunks, "number of chunks to compare; -1: all")
      ->check(check_chunk_count())
      ->capture_default_str();
  command
      ->add_option("--from", o->from,
                   "first position of a chunk to compare; -1: its middle, as llama.cpp's perplexity tool does")
      ->check(between(-1, 1e9))
      ->capture_default_str();
  command->add_flag("--json", o->json, "print the result as a JSON object");
  command->callback([o] { run_compare(*o); });
}

}  // namespace quire
