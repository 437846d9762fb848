// Logits and hidden states of prompts: the same numbers whatever else the engine does, and those that answers come from.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/error.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

using testing::answer;
using testing::answers_together;
using testing::random_tokens;
using testing::tiny_options;

std::vector<float> array_of(Engine& engine, const TokenIds& prompt, PromptArray array) {
  Request r{.prompt = prompt, .sampling = {}};
  r.array = array;
  const testing::Answer got = answer(engine, r);
  EXPECT_EQ(got.last.finish, FinishReason::kStop) << got.last.error;
  EXPECT_EQ(got.ends, 1);
  return got.last.embedding;
}

double logprob(std::span<const float> logits, TokenId token) {
  const float most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(double{x} - double{most});
  return double{logits[static_cast<size_t>(token)]} - double{most} - std::log(sum);
}

TEST(PromptArrays, LogitsAreThoseOfAnswersAndPromptLogprobs) {
  Engine engine(tiny_options());
  const TokenIds prompt = random_tokens(1, 70);
  const auto vocab = static_cast<size_t>(engine.info().vocab_size);
  const std::vector<float> all = array_of(engine, prompt, PromptArray::kTokenLogits);
  ASSERT_EQ(all.size(), prompt.size() * vocab);
  const std::vector<float> last = array_of(engine, prompt, PromptArray::kLogits);
  EXPECT_TRUE(std::ranges::equal(last, std::span(all).last(vocab)));

  Request r{.prompt = prompt, .sampling = {.temperature = 0, .max_tokens = 1}};
  r.sampling.logprobs = 0;
  r.sampling.prompt_logprobs = 0;
  const testing::Answer greedy = answer(engine, r);
  EXPECT_EQ(greedy.tokens[0], std::ranges::max_element(last) - last.begin());
  EXPECT_NEAR(double{greedy.logprobs[0]}, logprob(last, greedy.tokens[0]), 1e-5);
  for (size_t i = 1; i < prompt.size(); ++i) {
    const auto before = std::span(all).subspan((i - 1) * vocab, vocab);
    EXPECT_NEAR(double{greedy.prompt[i].logprob}, logprob(before, prompt[i]), 1e-5) << i;
  }
}

TEST(PromptArrays, AreTheSameBitsInAnyBatchAndChunks) {
  const TokenIds prompt = random_tokens(2, 90), shared = random_tokens(2, 48);
  EngineOptions usual = tiny_options(), small = usual, alone = usual;
  small.max_num_seqs = small.max_num_batched_tokens = 5;
  alone.max_num_seqs = 1;
  alone.prefix_cache = false;
  for (const PromptArray array : {PromptArray::kHiddenStates, PromptArray::kLogits, PromptArray::kTokenLogits}) {
    Engine one(alone);
    const std::vector<float> wanted = array_of(one, prompt, array);
    for (const EngineOptions& options : {usual, small}) {
      Engine engine(options);
      answer(engine, {.prompt = shared, .sampling = {.max_tokens = 3}});  // a cached beginning
      std::vector<Request> requests;
      for (int i = 0; i < 6; ++i) {
        Request r{.prompt = i % 2 ? random_tokens(9, 40) : prompt, .sampling = {.temperature = 0, .max_tokens = 9}};
        if (i % 2 == 0) r.array = array;
        requests.push_back(r);
      }
      const auto together = answers_together(engine, requests);
      for (size_t i = 0; i < requests.size(); i += 2) EXPECT_EQ(together[i][0].last.embedding, wanted) << i;
    }
  }
}

// Normalised to length 1, the last one is the vector that pooling by the last token gives.
TEST(PromptArrays, HiddenStatesAreThoseThatEmbeddingsComeFrom) {
  Engine engine(tiny_options());
  const TokenIds prompt = random_tokens(3, 40);
  const auto hidden = static_cast<size_t>(engine.info().hidden);
  const std::vector<float> all = array_of(engine, prompt, PromptArray::kHiddenStates);
  ASSERT_EQ(all.size(), prompt.size() * hidden);
  Request r{.prompt = prompt, .sampling = {}};
  r.pooling = Pooling::kLast;
  const std::vector<float> embedding = answer(engine, r).last.embedding;
  double squares = 0;
  const auto last = std::span(all).last(hidden);
  for (const float x : last) squares += double{x} * double{x};
  for (size_t i = 0; i < hidden; ++i) EXPECT_NEAR(double{embedding[i]}, double{last[i]} / std::sqrt(squares), 1e-6);
}

TEST(PromptArrays, TakeNothingElse) {
  Engine engine(tiny_options());
  Request r{.prompt = random_tokens(1, 5), .sampling = {}};
  r.array = PromptArray::kLogits;
  const auto refused = [&](const Request& wrong) { EXPECT_THROW(answer(engine, wrong), Error); };
  Request pooled = r, several = r, described = r;
  pooled.pooling = Pooling::kMean;
  several.sampling.n = 2;
  described.sampling.prompt_logprobs = 1;
  for (const Request& wrong : {pooled, several, described}) refused(wrong);
}

}  // namespace
}  // namespace quire
