// /v1/rerank and /v1/score over loopback, in vLLM's shapes.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "unit/server/running_server.h"

namespace quire {
namespace {

// A cross-encoder that likes long documents.
struct CrossEncoder {
  RunningServer running{{}, [this](Server&) { setup(); }};
  HttpClient client{running.port()};

  void setup() {
    ModelInfo& info = running.model.change_info();
    info.generates = false;
    info.pooling = Pooling::kFirst;
    info.labels = info.embedding_size = 1;
    info.score = Score::kSigmoid;
    running.model.pooled = [](const Request& r) {
      return std::vector<float>{static_cast<float>(r.prompt.size()) - 5.0f};
    };
  }
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST(Scores, OrderDocumentsByRelevance) {
  CrossEncoder model;
  const Json json =
      model.client.post("/v1/rerank", R"({"query": "ab", "documents": ["c", "defg", {"text": "hi"}]})").json();
  EXPECT_TRUE(json["id"].get<std::string>().starts_with("rerank-"));
  EXPECT_EQ(json["model"], "scripted");
  EXPECT_EQ(json["usage"], Json::parse(R"({"prompt_tokens": 16, "total_tokens": 16})"));
  ASSERT_EQ(json["results"].size(), 3u);
  EXPECT_EQ(json["results"][0]["index"], 1);
  EXPECT_EQ(json["results"][0]["document"], Json::parse(R"({"text": "defg"})"));
  EXPECT_DOUBLE_EQ(json["results"][0]["relevance_score"], sigmoid(2));
  EXPECT_EQ(json["results"][1]["index"], 2);
  EXPECT_EQ(json["results"][2]["index"], 0);
  EXPECT_EQ(model.running.model.last_request().second_text, 3u);
}

TEST(Scores, KeepTheBestDocumentsOnly) {
  CrossEncoder model;
  const Json json =
      model.client
          .post("/v2/rerank", R"({"query": "a", "documents": ["c", "def"], "top_n": 1, "return_documents": false})")
          .json();
  ASSERT_EQ(json["results"].size(), 1u);
  EXPECT_EQ(json["results"][0]["index"], 1);
  EXPECT_FALSE(json["results"][0].contains("document"));
  EXPECT_EQ(model.client.post("/reranking", R"({"query": "a", "documents": ["c", "def"], "top_n": 9})")
                .json()["results"]
                .size(),
            2u);
}

TEST(Scores, ComparePairsOfTexts) {
  CrossEncoder model;
  const Json one = model.client.post("/v1/score", R"({"text_1": "ab", "text_2": ["c", "de"]})").json();
  EXPECT_EQ(one["object"], "list");
  ASSERT_EQ(one["data"].size(), 2u);
  EXPECT_EQ(one["data"][1]["object"], "score");
  EXPECT_DOUBLE_EQ(one["data"][1]["score"], sigmoid(0));
  const Json each = model.client.post("/score", R"({"queries": ["a", "bcd"], "documents": ["e", "f"]})").json();
  EXPECT_DOUBLE_EQ(each["data"][0]["score"], sigmoid(-2));
  EXPECT_DOUBLE_EQ(each["data"][1]["score"], sigmoid(0));
}

TEST(Scores, CutPairsThatAreTooLong) {
  CrossEncoder model;
  const Json json =
      model.client.post("/score", R"({"text_1": "ab", "text_2": "cdefgh", "truncate_prompt_tokens": 5})").json();
  EXPECT_EQ(json["usage"]["prompt_tokens"], 5);
}

TEST(Scores, AreTheRawResultsIfTheModelSaysSo) {
  CrossEncoder model;
  model.running.model.change_info().score = Score::kRaw;
  EXPECT_EQ(model.client.post("/score", R"({"text_1": "ab", "text_2": "c"})").json()["data"][0]["score"], -1.0);
}

TEST(Scores, AreTheProbabilityOfYesForTwoAnswers) {
  CrossEncoder model;
  ModelInfo& info = model.running.model.change_info();
  info.pooling = Pooling::kLast;
  info.labels = info.embedding_size = 2;
  info.score = Score::kYesNo;
  model.running.model.pooled = [](const Request&) { return std::vector<float>{1.0f, -1.0f}; };
  EXPECT_DOUBLE_EQ(model.client.post("/score", R"({"text_1": "ab", "text_2": "c"})").json()["data"][0]["score"],
                   sigmoid(2));
}

TEST(Scores, AreCosinesOfEmbeddings) {
  RunningServer running({}, [](Server&) {});
  running.model.change_info().pooling = Pooling::kMean;
  running.model.pooled = [](const Request& r) {
    const auto angle = static_cast<double>(r.prompt.size());
    return std::vector<float>{static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))};
  };
  HttpClient client(running.port());
  const Json json = client.post("/v1/rerank", R"({"query": "ab", "documents": ["cdef", "gh"]})").json();
  EXPECT_EQ(json["results"][0]["index"], 1);
  EXPECT_NEAR(json["results"][0]["relevance_score"], 1, 1e-6);
  EXPECT_NEAR(json["results"][1]["relevance_score"], std::cos(2), 1e-6);
  EXPECT_EQ(json["usage"]["prompt_tokens"], 8);
  EXPECT_EQ(running.model.submitted(), 3u);
}

TEST(Scores, NeedAModelThatHasThem) {
  RunningServer plain;
  HttpClient client(plain.port());
  const auto refused = client.post("/v1/rerank", R"({"query": "a", "documents": ["b"]})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.error_param(), "model");
  plain.model.change_info().labels = 3;
  EXPECT_EQ(client.post("/v1/score", R"({"text_1": "a", "text_2": "b"})").error_param(), "model");
}

TEST(Scores, AreAllThatAClassifierHas) {
  CrossEncoder model;
  const std::pair<const char*, const char*> bodies[] = {
      {"/v1/embeddings", R"({"input": "a"})"},
      {"/v1/completions", R"({"prompt": "a"})"},
      {"/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}]})"},
      {"/v1/responses", R"({"input": "a"})"}};
  for (const auto& [path, body] : bodies) {
    const auto refused = model.client.post(path, body);
    EXPECT_EQ(refused.status, 400) << path;
    EXPECT_EQ(refused.error_param(), "model") << path;
  }
  EXPECT_EQ(model.client.post("/tokenize", R"({"prompt": "a"})").status, 200);
  EXPECT_EQ(model.running.model.submitted(), 0u);
}

}  // namespace
}  // namespace quire
