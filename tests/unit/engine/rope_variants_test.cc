// Ropes that depend on the length of a prompt: sequences of different variants share no pages, and each has the answer
// that it has alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "engine/single_sequence.h"
#include "unit/engine/tiny_engine.h"
#include "unit/model/edited_model.h"

namespace quire {
namespace {

using testing::Answer;
using testing::answer;
using testing::EditedModel;
using testing::expect_same;
using testing::random_tokens;

constexpr int kOriginal = 64, kNewTokens = 12;

// The golden Llama, stretched from a context of kOriginal tokens. Heads have 8 pairs.
class RopeVariants : public ::testing::TestWithParam<std::string> {
 protected:
  RopeVariants() : model_("llama") {
    nlohmann::json rope{{"rope_theta", 10000.0}, {"rope_type", GetParam()}, {"factor", 8.0}};
    if (GetParam() == "longrope") {
      rope["short_factor"] = {1.0, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6};
      rope["long_factor"] = {1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0};
    }
    model_.config.erase("rope_parameters");
    model_.config["rope_scaling"] = rope;
    model_.config["original_max_position_embeddings"] = kOriginal;
    options_ = testing::tiny_options();
    options_.model = model_.write().string();
  }

  EngineOptions options_;

 private:
  EditedModel model_;
};

Request greedy_request(TokenIds prompt) {
  Request r;
  r.prompt = std::move(prompt);
  r.sampling.temperature = 0;
  r.sampling.max_tokens = kNewTokens;
  r.sampling.ignore_eos = true;
  r.sampling.logprobs = 0;
  return r;
}

TokenIds greedy(const EngineOptions& options, const TokenIds& prompt) {
  LoadedModel model(options);
  SingleSequence sequence(model);
  auto logits = sequence.append(prompt, false);
  TokenIds tokens;
  while (tokens.size() < kNewTokens) {
    tokens.push_back(argmax(logits));
    logits = sequence.append(std::span(tokens).last(1), false);
  }
  return tokens;
}

TokenIds first(const TokenIds& ids, int count) { return {ids.begin(), ids.begin() + count}; }

TEST_P(RopeVariants, ShareNoPages) {
  const TokenIds ids = random_tokens(1, 200);
  Engine engine(options_);
  answer(engine, greedy_request(first(ids, 60)));
  EXPECT_EQ(answer(engine, greedy_request(first(ids, 64))).last.usage.cached_tokens, 60);
  EXPECT_EQ(answer(engine, greedy_request(first(ids, 65))).last.usage.cached_tokens, 0);
  EXPECT_EQ(answer(engine, greedy_request(first(ids, 65))).last.usage.cached_tokens, 64);
  // With dynamic scaling, each length is a variant.
  EXPECT_EQ(answer(engine, greedy_request(first(ids, 100))).last.usage.cached_tokens, GetParam() == "dynamic" ? 0 : 64);
}

TEST_P(RopeVariants, AnswerAsASingleSequenceDoes) {
  const TokenIds ids = random_tokens(2, 200);
  options_.max_num_batched_tokens = 48;  // so that the long prompts are cut into chunks
  Engine engine(options_);
  for (const int length : {40, kOriginal, kOriginal + 1, 150}) {
    SCOPED_TRACE(length);
    EXPECT_EQ(answer(engine, greedy_request(first(ids, length))).tokens, [&] {
      EngineOptions whole = options_;
      whole.max_num_batched_tokens = 256;
      return greedy(whole, first(ids, length));
    }());
  }
}

TEST_P(RopeVariants, ChangeNoOtherSequenceOfTheBatch) {
  const TokenIds ids = random_tokens(3, 200);
  std::vector<Request> requests;
  for (const int length : {50, 64, 65, 90, 150, 60}) requests.push_back(greedy_request(first(ids, length)));
  std::vector<Answer> alone;
  EngineOptions o = options_;
  o.prefix_cache = false;
  for (const Request& r : requests) {
    Engine engine(o);
    alone.push_back(answer(engine, r));
  }
  options_.max_num_batched_tokens = 48;
  Engine engine(options_);
  const auto together = testing::answers_together(engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) expect_same(alone[i], together[i][0], "request " + std::to_string(i));
}

// More variants than tables are kept.
TEST_P(RopeVariants, MayBeMany) {
  const TokenIds ids = random_tokens(4, 200);
  Engine engine(options_);
  const Answer before = answer(engine, greedy_request(first(ids, 70)));
  for (int length = 71; length < 150; ++length) {
    Request r = greedy_request(first(ids, length));
    r.sampling.max_tokens = 1;
    answer(engine, r);
  }
  expect_same(before, answer(engine, greedy_request(first(ids, 70))));
}

INSTANTIATE_TEST_SUITE_P(Kinds, RopeVariants, ::testing::Values("longrope", "dynamic"),
                         [](const auto& kind) { return kind.param; });

}  // namespace
}  // namespace quire
