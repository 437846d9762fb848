#include "cli/bench/speculation_run.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "cli/bench/limits.h"
#include "engine/option_names.h"
#include "engine/step_costs.h"
#include "text/chat_template.h"

namespace quire {
namespace {

constexpr int kCostSweeps = 5, kCostSteps = 8;
constexpr int kWarmAnswer = 8;

// Rows whose steps are timed: those that verifying may have, as far as the choices of one request go.
std::vector<int> timed_rows(const SpeculationOptions& o) {
  const int most = std::min(o.parallel * (1 + o.engine.num_speculative_tokens), kMaxChoices);
  std::vector<int> rows;
  for (const int knot : StepCosts::kKnots) {
    if (knot >= 1 && knot < most) rows.push_back(knot);
  }
  rows.push_back(most);
  return rows;
}

EngineOptions engine_options(Speculation drafter, const SpeculationOptions& o) {
  EngineOptions e = o.engine;
  e.speculative = drafter;
  if (drafter != Speculation::kCorpus && drafter != Speculation::kAuto) e.speculative_corpus.clear();
  e.prefix_cache = false;  // the second run of a prompt would begin later
  e.max_num_seqs = std::max(o.parallel, timed_rows(o).back());
  e.max_num_batched_tokens = std::max(e.max_num_batched_tokens, e.max_num_seqs);
  return e;
}

// Answers to requests that run together.
struct Answers {
  std::mutex mutex;
  std::condition_variable done;
  std::vector<TokenIds> tokens;  // choice 0's
  int left = 0;                  // choices that have not ended
  std::string error;
};

struct GroupRun {
  std::vector<TokenIds> answers;
  DecodeCounts counts;
};

class SpeculationRun {
 public:
  SpeculationRun(Speculation drafter, const SpeculationOptions& options)
      : options_(options), engine_(engine_options(drafter, options)) {}

  const Engine& engine() const { return engine_; }

  void add(const BenchPrompt& prompt) {
    TokenIds ids = encode(prompt.text);
    const int most = engine_.info().max_model_len - options_.tokens;
    if (std::cmp_greater(ids.size(), most))
      throw invalid("prompt {} has {} tokens; with -n {} at most {} fit (--max-model-len {})", prompt.name, ids.size(),
                    options_.tokens, std::max(0, most), engine_.info().max_model_len);
    prompts_.push_back(std::move(ids));
  }

  GroupRun run(size_t first, size_t count, int tokens, bool speculate) {
    std::vector<Request> requests;
    for (size_t i = first; i < first + count; ++i) {
      Request& r = requests.emplace_back();
      r.prompt = prompts_[i];
      r.sampling.temperature = options_.temperature;
      r.sampling.seed = i;
      r.sampling.max_tokens = tokens;
      r.speculate = speculate;
    }
    return run(requests);
  }

  // Seconds of a decode step of so many sequences; 0: there was none.
  double step_seconds(int rows) {
    Request r;
    r.prompt = prompts_[0];
    r.sampling.temperature = 0;
    r.sampling.ignore_eos = true;
    r.sampling.max_tokens = 1 + kCostSteps;
    r.sampling.n = rows;
    r.speculate = false;
    const EngineStats before = engine_.stats();
    run({&r, 1});
    const EngineStats after = engine_.stats();
    const auto steps = static_cast<double>(after.decode_steps - before.decode_steps);
    return steps > 0 ? (after.decode_seconds - before.decode_seconds) / steps : 0;
  }

 private:
  TokenIds encode(const std::string& text) const {
    if (!engine_.has_chat_template()) return engine_.encode(text);
    nlohmann::ordered_json message{{"role", "user"}, {"content", text}};
    ChatInput input;
    input.messages.push_back(std::move(message));
    return engine_.encode_chat(std::move(input));
  }

  GroupRun run(std::span<const Request> requests) {
    const auto answers = std::make_shared<Answers>();
    answers->tokens.resize(requests.size());
    for (const Request& r : requests) answers->left += r.sampling.n;
    const auto choices = static_cast<uint64_t>(answers->left);
    const EngineStats before = engine_.stats();
    const double elapsed = seconds_of([&] {
      for (size_t i = 0; i < requests.size(); ++i) submit(requests[i], i, answers);
      std::unique_lock lock(answers->mutex);
      answers->done.wait(lock, [&] { return answers->left == 0; });
    });
    if (!answers->error.empty()) throw invalid("a request failed: {}", answers->error);
    // The engine counts a step after it has told the clients.
    EngineStats after = engine_.stats();
    while (after.finished_requests < before.finished_requests + choices) {  // counts choices
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      after = engine_.stats();
    }
    return {std::move(answers->tokens), DecodeCounts::between(before, after, elapsed)};
  }

  void submit(const Request& request, size_t index, const std::shared_ptr<Answers>& answers) {
    engine_.submit(request, [answers, index](const Output& out) {
      const std::lock_guard lock(answers->mutex);
      if (out.choice == 0) {
        for (const OutputToken& token : out.tokens) answers->tokens[index].push_back(token.id);
      }
      if (out.finish == FinishReason::kNone) return;
      if (out.finish == FinishReason::kError) answers->error = out.error;
      if (--answers->left == 0) answers->done.notify_one();
    });
  }

  const SpeculationOptions& options_;
  std::vector<TokenIds> prompts_;
  Engine engine_;
};

void expect_equal(const TokenIds& off, const TokenIds& on, const std::string& drafter, const BenchPrompt& prompt) {
  if (off == on) return;
  const auto [a, b] = std::mismatch(off.begin(), off.end(), on.begin(), on.end());
  const auto show = [](auto at, auto end) { return at == end ? std::string("missing") : std::to_string(*at); };
  throw invalid("{} changed the answer to prompt {}: token {} is {}, without speculation {}; please report this",
                drafter, prompt.name, a - off.begin(), show(b, on.end()), show(a, off.end()));
}

// The least of several samples: other programs only lengthen steps.
std::vector<RowCost> measure_costs(SpeculationRun& run, const SpeculationOptions& options, Progress& progress) {
  const std::vector<int> rows = timed_rows(options);
  std::vector<Samples> samples(rows.size());
  for (size_t sweep = 0; sweep < kCostSweeps; ++sweep) {
    for (size_t i = 0; i < rows.size(); ++i) {
      progress.step(sweep * rows.size() + i, kCostSweeps * rows.size());
      if (const double seconds = run.step_seconds(rows[i]); seconds > 0) samples[i].add(seconds);
    }
  }
  std::vector<RowCost> costs;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!samples[i].values.empty()) costs.push_back({rows[i], samples[i].low()});
  }
  return costs;
}

}  // namespace

DrafterResult measure_drafter(Speculation drafter, const SpeculationOptions& options,
                              std::span<const BenchPrompt> prompts, Progress& progress) {
  progress.stage("loading " + options.engine.model);
  SpeculationRun run(drafter, options);
  DrafterResult result;
  result.drafter = name(drafter);
  result.model = run.engine().info();
  for (const BenchPrompt& prompt : prompts) run.add(prompt);
  run.run(0, 1, std::min(kWarmAnswer, options.tokens), false);

  progress.stage("measuring " + result.drafter);
  const auto most = static_cast<size_t>(options.parallel);
  for (size_t first = 0, group = 0; first < prompts.size(); first += most, ++group) {
    progress.step(first, prompts.size());
    const size_t count = std::min(most, prompts.size() - first);
    const bool on_first = group % 2 == 1;
    GroupRun a = run.run(first, count, options.tokens, on_first), b = run.run(first, count, options.tokens, !on_first);
    const GroupRun &off = on_first ? b : a, &on = on_first ? a : b;
    SpeculationSample sample{prompts[first].name, 0, off.counts.seconds, on.counts.seconds};
    for (size_t i = 0; i < count; ++i) {
      expect_equal(off.answers[i], on.answers[i], result.drafter, prompts[first + i]);
      sample.tokens += on.answers[i].size();
    }
    result.samples.push_back(std::move(sample));
    result.off.add(off.counts);
    result.on.add(on.counts);
  }
  // Last, because the engine learns costs of steps, too, and must not know them earlier than it would.
  progress.stage("timing steps");
  result.costs = measure_costs(run, options, progress);
  result.expected = estimate(result.off, result.on, result.costs);
  return result;
}

}  // namespace quire
