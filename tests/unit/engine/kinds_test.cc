// Every kind of layer in every mode of the engine: the same answers and log-probabilities, to the bit.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "engine/dtype_names.h"
#include "engine/single_sequence.h"
#include "unit/engine/golden_kinds.h"
#include "unit/engine/seeded_request.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

using testing::Answer;
using testing::answer;
using testing::Answers;
using testing::answers;
using testing::expect_same;
using testing::random_tokens;

constexpr int kLongest = 128;  // tokens of prompt and answer

struct ModelKind {
  std::string name;
  std::function<std::string()> path;
  std::string activations = "auto", kv = "auto";
  friend std::ostream& operator<<(std::ostream& out, const ModelKind& kind) { return out << kind.name; }
};

class Kinds : public ::testing::TestWithParam<ModelKind> {
 protected:
  void SetUp() override {
    if (!testing::is_known(GetParam().path())) GTEST_SKIP() << "Quire does not know this family";
    testing::ignore_time(options_);
    options_.model = GetParam().path();
    options_.activations = GetParam().activations;
    options_.kv_cache_dtype = GetParam().kv;
    options_.threads = 2;
    options_.max_num_seqs = 4;
    options_.max_model_len = kLongest;
    alone_ = options_;
    alone_.max_num_seqs = 1;
    alone_.prefix_cache = false;
  }

  Answers alone(const Request& r) const {
    Engine engine(alone_);
    return answers(engine, r);
  }
  std::vector<Answers> each_alone(const std::vector<Request>& requests) const {
    Engine engine(alone_);
    std::vector<Answers> all;
    for (const Request& r : requests) all.push_back(answers(engine, r));
    return all;
  }

  // One of the longest sequences fits, and four shorter ones until they grow. states: of each running sequence.
  CacheLayout shrink_cache(size_t states) {
    const KvType type = find_value(kKvTypeNames, GetParam().kv).value_or(KvType::kBf16);
    CacheLayout layout = cache_layout(read_model_config(Checkpoint::open(GetParam().path())), type);
    options_.kv_cache_bytes = layout.sequence_units(kLongest) * layout.unit_bytes() +
                              states * static_cast<size_t>(options_.max_num_seqs) * layout.state_bytes();
    return layout;
  }

  EngineOptions options_, alone_;
};

std::vector<Request> requests_of_all_lengths() {
  std::vector<Request> requests;
  for (unsigned i = 0; i < 10; ++i) {
    constexpr int kPrompts[] = {1, 15, 16, 17, 30, 33, 5, 64, 90, 40};
    Request r = seeded_request(random_tokens(i, kPrompts[i]), i % 3 == 0 ? 36 : 9);
    r.sampling.seed = i;
    r.sampling.n = i == 4 ? 3 : 1;
    if (i == 5) r.sampling.prompt_logprobs = 0;
    requests.push_back(std::move(r));
  }
  return requests;
}

void expect_all_same(const std::vector<Answers>& a, const std::vector<Answers>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t choice = 0; choice < a[i].size(); ++choice) {
      const std::string what = "request " + std::to_string(i) + ", choice " + std::to_string(choice);
      expect_same(a[i][choice], b[i][choice], what);
      for (size_t t = 0; t < a[i][choice].prompt.size(); ++t)
        EXPECT_EQ(a[i][choice].prompt[t].logprob, b[i][choice].prompt[t].logprob) << what;
    }
  }
}

TEST_P(Kinds, AnswerAsASingleSequenceDoes) {
  const TokenIds prompt = random_tokens(1, 70);
  Request r = seeded_request(prompt, 40);
  r.sampling.temperature = 0;
  LoadedModel model(alone_);
  SingleSequence sequence(model);
  auto logits = sequence.append(prompt, false);
  TokenIds tokens;
  while (tokens.size() < 40) {
    tokens.push_back(argmax(logits));
    logits = sequence.append(std::span(tokens).last(1), false);
  }
  EXPECT_EQ(alone(r)[0].tokens, tokens);
}

TEST_P(Kinds, ChangeNoAnswerInABatch) {
  options_.max_num_batched_tokens = 24;
  Engine engine(options_);
  const std::vector<Request> requests = requests_of_all_lengths();
  expect_all_same(each_alone(requests), testing::answers_together(engine, requests));
}

TEST_P(Kinds, ChangeNoAnswerThatIsPreempted) {
  const CacheLayout layout = shrink_cache(1);
  options_.max_num_batched_tokens = 24;
  std::vector<Request> requests;
  for (unsigned i = 0; i < 8; ++i) {
    requests.push_back(seeded_request(random_tokens(i, 3 + 7 * static_cast<int>(i % 3)), 90));
    requests.back().sampling.n = i == 3 ? 2 : 1;
  }
  Engine engine(options_);
  expect_all_same(each_alone(requests), testing::answers_together(engine, requests));
  if (layout.unit_bytes() > 0) {
    EXPECT_GT(engine.stats().preemptions, 0u);
  }
}

// The second time, the drafts are the answers of the first time.
TEST_P(Kinds, ChangeNoAnswerWithDrafts) {
  std::vector<Request> requests = requests_of_all_lengths();
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].sampling.temperature = i % 3 == 0 ? 0 : 1;
    if (i % 2 == 0) requests[i].sampling.logprobs = 3;
  }
  const std::vector<Answers> expected = each_alone(requests);
  options_.speculative = Speculation::kAuto;
  options_.speculate_always = true;
  options_.num_speculative_tokens = 5;
  options_.max_num_batched_tokens = 40;
  Engine engine(options_);
  expect_all_same(expected, testing::answers_together(engine, requests));
  expect_all_same(expected, testing::answers_together(engine, requests));
  EXPECT_GT(engine.stats().accepted_tokens, 0u);
  EXPECT_LT(engine.stats().accepted_tokens, engine.stats().drafted_tokens);
}

TEST_P(Kinds, ChangeNoAnswerWithDraftsThatIsPreempted) {
  options_.speculative = Speculation::kNgram;
  options_.speculate_always = true;
  shrink_cache(2);
  options_.max_num_batched_tokens = 40;
  std::vector<Request> requests;
  for (unsigned i = 0; i < 8; ++i) {
    requests.push_back(seeded_request(random_tokens(i, 3 + 7 * static_cast<int>(i % 3)), 90));
    requests.back().sampling.temperature = i % 2 == 0 ? 0 : 1;
  }
  Engine engine(options_);
  expect_all_same(each_alone(requests), testing::answers_together(engine, requests));
}

TEST_P(Kinds, ChangeNoAnswerAfterAPrefixHit) {
  Engine engine(options_);
  const Request first = seeded_request(random_tokens(1, 70), 20);
  const Answer cold = answer(engine, first);
  expect_same(alone(first)[0], cold);
  const Answer again = answer(engine, first);
  expect_same(cold, again, "the same request");
  EXPECT_GE(again.last.usage.cached_tokens, 64);

  TokenIds turn = first.prompt;
  turn.insert(turn.end(), cold.tokens.begin(), cold.tokens.end());
  turn.push_back(3);
  const Answer next = answer(engine, seeded_request(turn));
  expect_same(alone(seeded_request(turn))[0], next, "the next turn");
  EXPECT_GT(next.last.usage.cached_tokens, 64);

  TokenIds other = random_tokens(2, 80);
  std::copy_n(first.prompt.begin(), 40, other.begin());
  expect_same(alone(seeded_request(other))[0], answer(engine, seeded_request(other)),
              "a prompt that parts from the first");
}

TEST_P(Kinds, ChangeNoAnswerAfterARestart) {
  const auto folder = std::filesystem::temp_directory_path() / ("quire-kinds-" + std::to_string(::getpid()));
  options_.cache_dir = folder.string();
  const Request r = seeded_request(random_tokens(3, 100));
  const Answer cold = [&] {
    Engine engine(options_);
    return answer(engine, r);
  }();
  {
    Engine engine(options_);
    answer(engine, seeded_request(random_tokens(4, 20)));  // the first steps tell what loading costs
    const Answer warm = answer(engine, r);
    expect_same(cold, warm);
    EXPECT_EQ(warm.last.usage.cached_tokens, 96);
    EXPECT_GT(engine.stats().pages_loaded, 0u);
  }
  std::filesystem::remove_all(folder);
}

TEST_P(Kinds, ChangeNoAnswerBesideOtherChoices) {
  Request r = seeded_request(random_tokens(5, 37), 25);
  const Answer single = alone(r)[0];
  r.sampling.n = 4;
  const Answers without = alone(r);
  Engine engine(options_);
  const Answers with = answers(engine, r);
  expect_same(single, with[0]);
  for (size_t choice = 0; choice < with.size(); ++choice)
    expect_same(without[choice], with[choice], "choice " + std::to_string(choice));
}

std::vector<ModelKind> kinds() {
  std::vector<ModelKind> all;
  for (const std::string name : testing::kGoldenKinds) {
    all.push_back({name, [name] { return testing::golden_kind(name); }});
    for (const std::string kv : {"int8", "int4", "fp8"})
      all.push_back({name + "_" + kv + "_cache", [name] { return testing::golden_kind(name); }, "auto", kv});
  }
  // The golden models' weights are not quantized, so their inputs are bf16.
  for (const std::string activations : {"int8", "int8x2", "bf16"}) {
    all.push_back(
        {"experts_" + activations, [] { return testing::tiny_model(TensorType::Q4_1, 512, 0, 8); }, activations});
    all.push_back(
        {"window_" + activations, [] { return testing::tiny_model(TensorType::Q4_K, 512, 20); }, activations});
    for (const std::string kv : {"int8", "int4", "fp8"})
      all.push_back({"window_" + kv + "_cache_" + activations,
                     [] { return testing::tiny_model(TensorType::Q4_K, 512, 20); }, activations, kv});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, Kinds, ::testing::ValuesIn(kinds()), [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace quire
