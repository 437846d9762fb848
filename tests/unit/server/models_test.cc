// A server with two models: each request reaches the one that it names.
#include "server/api/models.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "error_of.h"
#include "unit/server/http_client.h"
#include "unit/server/running_server.h"

namespace quire {
namespace {

class TwoModels : public ::testing::Test {
 protected:
  TwoModels() {
    small_.answer = "small";
    large_.answer = "large";
    large_.change_info().vocab_size = 128;
    large_.change_info().max_model_len = 500;
    spdlog::set_level(spdlog::level::off);
    ServerOptions options;
    options.port = 0;
    const ServedModel models[] = {{small_, {"small", "alias", "claude-*"}}, {large_, {"large", "claude-large"}}};
    server_ = std::make_unique<Server>(models, options);
    thread_ = std::thread([this] { server_->run(); });
  }
  ~TwoModels() override {
    server_->stop();
    server_->stop();
    thread_.join();
  }

  HttpClient client() const { return HttpClient(server_->port()); }
  // The text of the answer to a chat; `model` is a field or empty.
  std::string answer(const std::string& model) const {
    const std::string field = model.empty() ? "" : "\"model\": \"" + model + '"';
    return client().post("/v1/chat/completions", chat_body(field)).json()["choices"][0]["message"]["content"];
  }

  ScriptedCompleter small_, large_;
  std::unique_ptr<Server> server_;

 private:
  std::thread thread_;
};

TEST_F(TwoModels, AnswerUnderTheirNames) {
  EXPECT_EQ(answer("small"), "small");
  EXPECT_EQ(answer("alias"), "small");
  EXPECT_EQ(answer("large"), "large");
  EXPECT_EQ(answer(""), "small") << "the first is the default";
  EXPECT_EQ(answer("claude-3"), "small");
  EXPECT_EQ(answer("claude-large"), "large") << "a name wins over a pattern";
  EXPECT_EQ(
      client().post("/api/chat", chat_body(R"("model": "large:latest", "stream": false)")).json()["message"]["content"],
      "large");
  const auto refused = client().post("/v1/chat/completions", chat_body(R"("model": "medium")"));
  EXPECT_EQ(refused.status, 404);
  EXPECT_EQ(refused.error_param(), "model");
}

TEST_F(TwoModels, HaveTheirOwnLimits) {
  const std::string body = R"({"prompt": [200], "model": ")";
  EXPECT_EQ(client().post("/v1/completions", body + "small\"}").status, 200);
  EXPECT_EQ(client().post("/v1/completions", body + "large\"}").error_param(), "prompt[0]");
  EXPECT_EQ(client().post("/tokenize", R"({"prompt": "a", "model": "large"})").json()["max_model_len"], 500);
}

TEST_F(TwoModels, AreListed) {
  std::vector<std::string> ids, tags;
  const Json list = client().get("/v1/models").json(), tagged = client().get("/api/tags").json();
  for (const Json& model : list["data"]) ids.push_back(model["id"]);
  EXPECT_EQ(ids, (std::vector<std::string>{"small", "alias", "large", "claude-large"}));
  for (const Json& model : tagged["models"]) tags.push_back(model["name"]);
  EXPECT_EQ(tags, (std::vector<std::string>{"small:latest", "alias:latest", "large:latest", "claude-large:latest"}));
  EXPECT_EQ(client().get("/v1/models/large").json()["max_model_len"], 500);
  EXPECT_EQ(client().get("/v1/models/claude-7").json()["max_model_len"], 100'000);
  EXPECT_EQ(client().get("/v1/models/medium").status, 404);
}

TEST_F(TwoModels, ShareAdmission) {
  EXPECT_EQ(server_->models().all().size(), 2u);
  answer("small");
  answer("large");
  EXPECT_TRUE(eventually([&] { return server_->models().admission()->inside() == 0; }));
  EXPECT_NE(client().get("/metrics").body.find("generation_tokens_total{model_name=\"small\"} 10"), std::string::npos)
      << client().get("/metrics").body;
}

TEST(Models, NeedNamesOfTheirOwn) {
  ScriptedCompleter one, two;
  const ServedModel models[] = {{one, {"m"}}, {two, {"n", "m"}}};
  EXPECT_EQ(error_of([&] { Models(models, {}); }),
            "two models have the name \"m\"; give each its own (--served-model-name)");
}

}  // namespace
}  // namespace quire
