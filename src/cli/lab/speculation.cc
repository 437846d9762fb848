// Speculative decoding: accepted tokens on a prompt whose answer repeats it, and on one whose answer does not.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "cli/bench/limits.h"
#include "cli/bench/speculation_run.h"
#include "cli/figure/charts.h"
#include "cli/lab/experiment.h"

namespace quire {
namespace {

constexpr int kSpeculationContext = 1024;

struct PromptKind {
  std::string title;
  std::vector<BenchPrompt> prompts;
};

std::array<PromptKind, 2> prompt_kinds(size_t most) {
  std::array<PromptKind, 2> kinds{{{"answer repeats the prompt", copy_prompts()},
                                   {"answer is new",
                                    {{"a story", "Tell me a story about a clockmaker and a storm."},
                                     {"an explanation", "Explain how plants turn light into sugar."},
                                     {"a letter", "Write a letter to a friend who moved to another country."},
                                     {"advice", "How can I learn to play the piano as an adult?"}}}}};
  for (PromptKind& kind : kinds) kind.prompts.resize(std::min(most, kind.prompts.size()));
  return kinds;
}

LabResult run_speculation(const LabOptions& o, Progress& progress) {
  if (const int context = context_of(o.engine); context < kSpeculationContext)
    throw unsupported("the prompts of this experiment need a context of {} tokens, and {} has {}; take another model",
                      kSpeculationContext, o.engine.model, context);
  SpeculationOptions options{.engine = o.engine, .tokens = o.quick ? 96 : 192};
  options.engine.max_model_len = kSpeculationContext;
  const std::array<PromptKind, 2> kinds = prompt_kinds(o.quick ? 2 : 4);
  std::array<DrafterResult, 2> results;
  for (size_t i = 0; i < kinds.size(); ++i) {
    o.check();
    results[i] = measure_drafter(Speculation::kNgram, options, kinds[i].prompts, progress);
  }
  LabResult r;
  BarChart chart{.title = "Tokens of a decode step",
                 .y_label = "tokens",
                 .names = {"without drafts", "with drafts", "theory, from the acceptance"}};
  std::array<double, 2> speedup{};
  for (size_t i = 0; i < kinds.size(); ++i) {
    const DrafterResult& d = results[i];
    const std::string& title = kinds[i].title;
    speedup[i] = ratio(d.on.tokens_per_second(), d.off.tokens_per_second());
    chart.groups.push_back({title, {d.off.tokens_per_step(), d.on.tokens_per_step(), d.expected.tokens_per_step}});
    r.numbers.push_back({.what = title + ": tokens of a step without drafts",

                         .value = d.off.tokens_per_step(),
                         .claim = Claim::kEqual,
                         .foretold = 1,
                         .theory = "one row, one token"});
    // Whether to draft depends on what steps were seen to cost, so these counts change a little from run to run.
    r.numbers.push_back({.what = title + ": drafted tokens that were right",
                         .unit = "%",
                         .value = 100 * d.expected.acceptance,
                         .counted = false});
    r.numbers.push_back({.what = title + ": tokens of a step",

                         .value = d.on.tokens_per_step(),
                         .counted = false,
                         .claim = Claim::kAbout,
                         .foretold = d.expected.tokens_per_step,
                         .factor = 1.25,
                         .theory = "(1 - a^(k+1)) / (1 - a) for k drafted tokens, each right with chance a"});
    r.numbers.push_back({.what = title + ": tokens per second compared with no drafts",
                         .unit = "times",
                         .value = speedup[i],
                         .counted = false,
                         .claim = Claim::kAbout,
                         .foretold = ratio(d.expected.tokens_per_second, d.off.tokens_per_second()),
                         .factor = 1.3,
                         .theory = "the tokens of a step, and what steps of so many rows were measured to take"});
  }
  r.summary = fmt::format(
      "Drafts from the text so far give {:.2g} tokens a step where the answer repeats the prompt ({} as fast), and "
      "{:.2g} "
      "where it does not ({}).",
      results[0].on.tokens_per_step(), times_text(speedup[0]), results[1].on.tokens_per_step(), times_text(speedup[1]));
  r.setup = {
      fmt::format("{} prompts that ask to repeat or edit a text, and {} that ask for something new; greedy answers of "
                  "at most {} tokens. Each prompt runs with and without `--speculative ngram`, one right after the "
                  "other. The answers are compared: they must be equal, or the experiment fails.",
                  kinds[0].prompts.size(), kinds[1].prompts.size(), options.tokens)};
  const std::string model = shell_word(o.engine.model);
  r.commands = {fmt::format("quire bench speculative -m {} --speculative ngram --suite copy", model),
                fmt::format("quire run -m {} -p \"Tell me a story.\" --speculative ngram", model)};
  r.figures = {
      {.caption = "A step that verifies drafts gives one token more than it accepts", .svg = bar_chart_svg(chart)}};
  return r;
}

}  // namespace

constinit const Experiment kSpeculationExperiment{
    .name = "speculation",
    .title = "Speculative decoding",
    .question = "How many tokens does a step give if the next ones are guessed?",
    .technique =
        "A step reads all weights for one token. If a cheap drafter guesses the next tokens, one step can verify "
        "several of them, because they are rows of the same pass. The answer is the same; how many steps it "
        "saves depends on how many guesses are right.",
    .page = "speculative",
    .run = run_speculation};

}  // namespace quire
