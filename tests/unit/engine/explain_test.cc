// What a tap in the decoder sees: the numbers of the model, and nothing changes for others.

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <numeric>
#include <string>
#include <thread>

#include "engine/explain/explain.h"
#include "error_of.h"
#include "unit/engine/all_logits.h"
#include "unit/engine/golden_kinds.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

using testing::random_tokens;
using testing::tiny_options;

EngineOptions float_options(const std::string& model) {
  EngineOptions o;
  o.model = model;
  o.threads = 2;
  o.activations = "f32";
  o.kv_cache_dtype = "f32";
  o.max_model_len = 64;
  return o;
}

const std::vector<float>* find_place(const Explanation& e, std::string_view place) {
  const auto found = std::ranges::find(e.path, place, &ExplainedVector::place);
  return found == e.path.end() ? nullptr : &found->values;
}

// Sum of weight * value of each token, as attention has it.
std::vector<float> weighted_values(const Explanation& e) {
  std::vector<float> sum(e.values.front().size(), 0.0f);
  for (size_t token = 0; token < e.weights.size(); ++token)
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += e.weights[token] * e.values[token][i];
  return sum;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b, float error, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], error * (1 + std::abs(b[i]))) << what << ", element " << i;
}

class Explained : public ::testing::TestWithParam<const char*> {};

TEST_P(Explained, HasTheEnginesLogitsAndARowOfAttentionThatAddsUpToOne) {
  const std::string path = testing::golden_kind(GetParam());
  if (!testing::is_known(path)) GTEST_SKIP() << "Quire does not know this family";
  LoadedModel model(float_options(path));
  const ModelConfig& config = model.target.config;
  TokenIds tokens;
  for (const TokenId id : random_tokens(3, 16)) tokens.push_back(id % config.vocab);
  for (const size_t count : {1, 9, 16}) {
    const TokenIds prompt(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(count));
    SingleSequence sequence(model);
    const auto last = sequence.append(prompt, false);
    const std::vector<float> expected(last.begin(), last.end());
    for (int layer = 0; layer < static_cast<int>(config.layers.size()); ++layer) {
      const std::string what = std::string(GetParam()) + ", layer " + std::to_string(layer);
      const auto shape = attention_shape(config.layers[static_cast<size_t>(layer)]);
      const int head = shape ? shape->heads - 1 : 0;
      const Explanation e = explain(model, {.tokens = prompt, .layer = layer, .head = head});
      EXPECT_TRUE(testing::same_bits(e.logits, expected)) << what;
      EXPECT_EQ(e.embeddings.size(), count) << what;
      EXPECT_EQ(e.residual_norms.size(), config.layers.size() + 1) << what;
      for (const char* place : {"embedding", "layer_input", "mixer_input", "layer_output", "final_hidden"}) {
        ASSERT_NE(find_place(e, place), nullptr) << what << ": " << place;
        EXPECT_EQ(find_place(e, place)->size(), static_cast<size_t>(config.hidden)) << what << ": " << place;
      }
      for (const ExplainedVector& v : e.path)
        for (const float x : v.values) ASSERT_TRUE(std::isfinite(x)) << what << ": " << v.place;
      EXPECT_EQ(e.heads, shape ? shape->heads : 0) << what;
      EXPECT_EQ(e.weights.size(), shape ? count : 0) << what;
      if (shape) {
        EXPECT_NEAR(std::accumulate(e.weights.begin(), e.weights.end(), e.sink), 1, 1e-5) << what;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Explained, ::testing::ValuesIn(testing::kGoldenKinds),
                         [](const auto& info) { return std::string(info.param); });

// The row that is computed by the definition is the one that attention uses: with it, the values give the head's result.
TEST(Explain, WeightsGiveWhatTheHeadAttends) {
  for (const char* name : {"llama", "mistral", "gemma2", "gpt_oss", "bloom", "exaone4", "ministral3", "hunyuan",
                           "deepseek_v3", "gemma3_text", "cohere_qk_norm"}) {
    const std::string path = testing::golden_kind(name);
    if (!testing::is_known(path)) continue;
    LoadedModel model(float_options(path));
    const ModelConfig& config = model.target.config;
    const TokenIds prompt = random_tokens(5, 16);
    for (int layer = 0; layer < static_cast<int>(config.layers.size()); ++layer) {
      for (int head = 0; head < attention_shape(config.layers[static_cast<size_t>(layer)])->heads; ++head) {
        const Explanation e = explain(model, {.tokens = prompt, .layer = layer, .head = head});
        expect_near(weighted_values(e), *find_place(e, "attended"), 1e-4f,
                    std::string(name) + ", layer " + std::to_string(layer) + ", head " + std::to_string(head));
      }
    }
  }
}

TEST(Explain, ProductOfGateAndUpIsTheActivation) {
  LoadedModel model(float_options(testing::golden_kind("llama")));
  const Explanation e = explain(model, {.tokens = random_tokens(1, 8), .layer = 1});
  std::vector<float> product = *find_place(e, "gate");
  for (size_t i = 0; i < product.size(); ++i)
    product[i] *= (*find_place(e, "up"))[i] / (1 + std::exp(-product[i]));  // SiLU
  expect_near(product, *find_place(e, "activation"), 1e-4f, "gate and up");
}

TEST(Explain, ShowsEncodersWithoutLogits) {
  LoadedModel model(float_options((golden_dir() / "encoders" / "bert").string()));
  const Explanation e = explain(model, {.tokens = random_tokens(1, 8), .layer = 0});
  EXPECT_TRUE(e.logits.empty());
  EXPECT_NEAR(std::accumulate(e.weights.begin(), e.weights.end(), 0.0f), 1, 1e-5);
  expect_near(weighted_values(e), *find_place(e, "attended"), 1e-4f, "bert");
}

TEST(Explain, GivesTheTokenAndProbabilityOfAGreedyAnswer) {
  Engine engine(tiny_options());
  Request r{.prompt = random_tokens(4, 12), .sampling = {.temperature = 0, .max_tokens = 1}};
  r.sampling.ignore_eos = true;
  r.sampling.logprobs = 0;
  const testing::Answer answer = testing::answer(engine, r);
  const Explanation e = engine.explain({.tokens = r.prompt});
  EXPECT_EQ(argmax(e.logits), answer.tokens.at(0));
  const float top = *std::ranges::max_element(e.logits);
  double sum = 0;
  for (const float logit : e.logits) sum += std::exp(static_cast<double>(logit - top));
  EXPECT_NEAR(-std::log(sum), answer.logprobs.at(0), 1e-5);
}

TEST(Explain, LeavesRunningAnswersTheirBits) {
  std::vector<Request> requests;
  for (unsigned i = 0; i < 6; ++i) {
    Request r{.prompt = random_tokens(i, 40), .sampling = {.temperature = 0.9f, .max_tokens = 60}};
    r.sampling.seed = i;
    r.sampling.ignore_eos = true;
    r.sampling.logprobs = 0;
    requests.push_back(std::move(r));
  }
  Engine engine(tiny_options());
  const auto expected = testing::answers_together(engine, requests);
  const Explanation alone = engine.explain({.tokens = random_tokens(9, 16), .layer = 1, .head = 3});
  std::atomic<bool> ended{false};
  int explained = 0;
  std::thread asking([&] {
    while (!ended) {
      const Explanation e = engine.explain({.tokens = random_tokens(9, 16), .layer = 1, .head = 3});
      EXPECT_TRUE(testing::same_bits(e.logits, alone.logits));
      EXPECT_TRUE(testing::same_bits(e.weights, alone.weights));
      ++explained;
    }
  });
  const auto together = testing::answers_together(engine, requests);
  ended = true;
  asking.join();
  EXPECT_GT(explained, 0);
  for (size_t i = 0; i < requests.size(); ++i)
    testing::expect_same(expected[i][0], together[i][0], "request " + std::to_string(i));
}

TEST(Explain, RefusesWhatDoesNotExist) {
  Engine engine(tiny_options());
  const auto error = [&](const ExplainRequest& request) { return error_of([&] { engine.explain(request); }); };
  EXPECT_EQ(error({}), "the text has 0 tokens; it must have 1 to 16");
  EXPECT_EQ(error({.tokens = random_tokens(1, 17)}), "the text has 17 tokens; it must have 1 to 16");
  EXPECT_EQ(error({.tokens = {320}}), "token id 320 is outside the vocabulary (0 to 319)");
  EXPECT_EQ(error({.tokens = {-1}}), "token id -1 is outside the vocabulary (0 to 319)");
  EXPECT_EQ(error({.tokens = {1}, .layer = 2}), "layer 2 does not exist; the model has layers 0 to 1");
  EXPECT_EQ(error({.tokens = {1}, .layer = -1}), "layer -1 does not exist; the model has layers 0 to 1");
  EXPECT_EQ(error({.tokens = {1}, .head = 6}), "head 6 does not exist; layer 0 has heads 0 to 5");
  EXPECT_EQ(error({.tokens = {1}, .head = -1}), "head -1 does not exist; layer 0 has heads 0 to 5");
}

TEST(Explain, RefusesWithoutMemoryAndLeavesNoneBehind) {
  LoadedModel model(tiny_options());
  const size_t left = model.runtime.memory.left();
  explain(model, {.tokens = {1}});
  EXPECT_EQ(model.runtime.memory.left(), left);
  const auto all = model.runtime.memory.take([](size_t bytes) { return bytes; });
  EXPECT_TRUE(
      error_of([&] { explain(model, {.tokens = {1}}); }).ends_with("but only 0 KiB are left; lower --kv-cache-size"));
}

}  // namespace
}  // namespace quire
