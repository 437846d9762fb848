// llama.cpp's own API.
#include <gtest/gtest.h>

#include "unit/server/parse_request.h"
#include "unit/server/running_server.h"

namespace quire {
namespace {

constexpr std::string_view kPath = "/completion";

std::string body(const std::string& fields = "") { return body_with(Api::kLlamaCompletion, fields); }
std::string param_of(const std::string& fields) { return error_of(Api::kLlamaCompletion, body(fields)).param; }

TEST(LlamaRequests, TakeLlamaCppsParameters) {
  const ApiRequest request = parse(Api::kLlamaCompletion, body(R"("n_predict": 7, "temperature": 0.5, "top_k": 40,
      "repeat_penalty": 1.1, "repeat_last_n": 64, "typical_p": 0.9, "mirostat": 0, "stop": ["a"], "n_probs": 3,
      "n_cmpl": 2, "return_tokens": true, "seed": 5, "min_keep": 0, "n_indent": 0, "lora": [], "samplers": [],
      "logit_bias": [[15, 1.5], [16, false]], "response_fields": ["content"],
      "cache_prompt": false, "id_slot": 3, "n_keep": 5, "timings_per_token": true, "t_max_predict_ms": 500)"));
  EXPECT_EQ(request.sampling.max_tokens, 7);
  EXPECT_EQ(request.sampling.top_k, 40);
  EXPECT_EQ(request.sampling.repeat_last_n, 64);
  EXPECT_EQ(request.sampling.logprobs, 3);
  EXPECT_EQ(request.sampling.n, 2);
  EXPECT_TRUE(request.return_token_ids && request.has_seed && !request.stream);
  ASSERT_EQ(request.sampling.logit_bias.size(), 2u);
  EXPECT_EQ(request.sampling.logit_bias[0], std::pair(15, 1.5f));
  EXPECT_EQ(request.sampling.logit_bias[1].second, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(request.without_effect,
            (std::vector<std::string>{"cache_prompt", "id_slot", "n_keep", "timings_per_token", "t_max_predict_ms"}));
  // What a client copies from /props.
  EXPECT_FALSE(parse(Api::kLlamaCompletion, body(R"("seed": 4294967295, "n_predict": -1)")).has_seed);
  EXPECT_EQ(parse(Api::kLlamaCompletion, body()).sampling.max_tokens, std::nullopt);
  EXPECT_EQ(parse(Api::kChat, chat_with(R"("logit_bias": [])")).sampling.logit_bias.size(), 0u);
}

TEST(LlamaRequests, RefuseWhatWouldChangeTheAnswerAndIsNotSupported) {
  EXPECT_EQ(error_of(Api::kLlamaCompletion, "{}").param, "prompt");
  EXPECT_EQ(param_of(R"("samplers": ["top_k", "temperature"])"), "samplers");
  EXPECT_EQ(param_of(R"("min_keep": 2)"), "min_keep");
  EXPECT_EQ(param_of(R"("n_indent": 4)"), "n_indent");
  EXPECT_EQ(param_of(R"("lora": [{"id": 0, "scale": 1}])"), "lora");
  EXPECT_EQ(param_of(R"("post_sampling_probs": true)"), "post_sampling_probs");
  EXPECT_EQ(param_of(R"("image_data": [{"data": "", "id": 1}])"), "image_data");
  EXPECT_EQ(param_of(R"("n_probs": -1)"), "n_probs");
  EXPECT_EQ(param_of(R"("response_fields": "content")"), "response_fields");
  EXPECT_EQ(param_of(R"("logit_bias": [["Hello", -1]])"), "logit_bias[0][0]");
  EXPECT_EQ(param_of(R"("logit_bias": [[5]])"), "logit_bias[0]");
  EXPECT_EQ(param_of(R"("logit_bias": [[5, true]])"), "logit_bias[0][1]");
  EXPECT_EQ(param_of(R"("messages": [])"), "messages");
}

TEST(Llama, AnswersACompletion) {
  RunningServer running;
  running.model.answer = "Hi\nthere";
  running.model.cached_tokens = 1;
  HttpClient client(running.port());
  const Json json = client.post(kPath, body(R"("n_predict": 4, "temperature": 0.25, "cache_prompt": true)")).json();
  EXPECT_EQ(json["content"], "Hi\nt");
  EXPECT_EQ(json["stop"], true);
  EXPECT_EQ(json["stop_type"], "limit");
  EXPECT_EQ(json["tokens_predicted"], 4);
  EXPECT_EQ(json["tokens_evaluated"], 2);
  EXPECT_EQ(json["tokens_cached"], 1);
  EXPECT_EQ(json["has_new_line"], true);
  EXPECT_EQ(json["truncated"], false);
  EXPECT_EQ(json["tokens"], Json::array());
  EXPECT_EQ(json["generation_settings"]["n_predict"], 4);
  EXPECT_EQ(json["generation_settings"]["temperature"], 0.25);
  EXPECT_EQ(json["timings"]["cache_n"], 1);
  EXPECT_EQ(json["timings"]["predicted_n"], 4);
  EXPECT_FALSE(json.contains("completion_probabilities"));
  EXPECT_EQ(client.post(kPath, body()).json()["stop_type"], "eos");
  EXPECT_EQ(client.post(kPath, body(R"("n_predict": 0)")).json()["content"], "") << "only fills the cache";
  EXPECT_EQ(client.post("/v1/completion/", body()).status, 200);
  EXPECT_EQ(client.post(kPath, R"({"prompt": [72, 105], "n_predict": 1})").json()["tokens_evaluated"], 2);
}

TEST(Llama, GivesTokensProbabilitiesAndOnlyTheFieldsAskedFor) {
  RunningServer running;
  HttpClient client(running.port());
  const Json json = client.post(kPath, body(R"("n_predict": 2, "n_probs": 2, "return_tokens": true)")).json();
  EXPECT_EQ(json["tokens"], (Json::array({'H', 'e'})));
  ASSERT_EQ(json["completion_probabilities"].size(), 2u);
  const Json& first = json["completion_probabilities"][0];
  EXPECT_EQ(first["id"], 'H');
  EXPECT_EQ(first["token"], "H");
  EXPECT_EQ(first["bytes"], Json::array({'H'}));
  EXPECT_EQ(first["top_logprobs"].size(), 2u);
  EXPECT_EQ(first["top_logprobs"][1]["id"], 'I');
  const Json few =
      client.post(kPath, body(R"("response_fields": ["stop", "generation_settings/n_predict", "none", "stop/x"])"))
          .json();
  EXPECT_EQ(few, Json::parse(R"({"stop": true, "generation_settings/n_predict": -1})"));
}

TEST(Llama, AnswersSeveralPromptsWithAnArray) {
  RunningServer running;
  HttpClient client(running.port());
  const Json json = client.post(kPath, R"({"prompt": ["a", "bcd"], "n_cmpl": 2, "n_predict": 1})").json();
  ASSERT_EQ(json.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(json[i]["index"], i);
    EXPECT_EQ(json[i]["content"], "H");
    EXPECT_EQ(json[i]["tokens_evaluated"], i < 2 ? 1 : 3);
    EXPECT_EQ(json[i].contains("generation_settings"), i == 0) << "stop strings are not repeated for each";
  }
}

TEST(Llama, StreamsEvents) {
  RunningServer running;
  HttpClient client(running.port());
  const HttpAnswer answer = client.post(kPath, body(R"("stream": true, "n_probs": 1)"));
  EXPECT_TRUE(answer.headers.at("content-type").starts_with("text/event-stream"));
  std::string text;
  size_t probabilities = 0;
  const auto all = events(answer.body);
  for (const std::string& event : all) {
    const Json json = Json::parse(event);
    text += json["content"].get<std::string>();
    probabilities += json["completion_probabilities"].size();
    EXPECT_EQ(json["stop"], &event == &all.back());
  }
  EXPECT_EQ(text, "Hello");
  EXPECT_EQ(probabilities, 5u);
  const Json last = Json::parse(all.back());
  EXPECT_EQ(last["tokens_predicted"], 5);
  EXPECT_TRUE(last.contains("timings") && last.contains("generation_settings"));
  // Each of several answers has its last event.
  int ends = 0;
  for (const std::string& event : events(client.post(kPath, R"({"prompt": ["a", "b"], "stream": true})").body))
    ends += Json::parse(event)["stop"] == true;
  EXPECT_EQ(ends, 2);
}

TEST(Llama, TokenizesContent) {
  RunningServer running;
  HttpClient client(running.port());
  const auto tokenized = [&](const std::string& body) { return client.post("/tokenize", body).json(); };
  EXPECT_EQ(tokenized(R"({"content": "Hi"})"), Json::parse(R"({"tokens": [72, 105]})"));
  EXPECT_EQ(tokenized(R"({"content": "", "add_special": true, "parse_special": false})"),
            Json::parse(R"({"tokens": []})"));
  EXPECT_EQ(tokenized(R"({"content": [72, "i"]})"), Json::parse(R"({"tokens": [72, 105]})"));
  EXPECT_EQ(tokenized(R"({"content": "a\u00e1", "with_pieces": true})"), Json::parse(R"({"tokens":
      [{"id": 97, "piece": "a"}, {"id": 195, "piece": [195]}, {"id": 161, "piece": [161]}]})"));
  EXPECT_EQ(tokenized(R"({"prompt": "Hi"})")["count"], 2) << "vLLM's form";
  for (const auto& [fields, param] : {std::pair{R"("prompt": "a", "content": "b")", "prompt"},
                                      {R"("content": ["a", "b"])", "content"},
                                      {R"("content": 5)", "content"},
                                      {R"("prompt": "a", "with_pieces": true)", "with_pieces"},
                                      {R"("prompt": "a", "add_special": true)", "add_special"}}) {
    EXPECT_EQ(error_of(Api::kTokenize, "{" + std::string(fields) + "}").param, param) << fields;
  }
  EXPECT_FALSE(parse(Api::kTokenize, R"({"content": "a"})").add_special_tokens);
  EXPECT_TRUE(parse(Api::kTokenize, R"({"add_special": true, "content": "a"})").add_special_tokens);
  EXPECT_TRUE(parse(Api::kTokenize, R"({"prompt": "a"})").add_special_tokens);
  EXPECT_EQ(client.post("/detokenize", R"({"tokens": [72, 105]})").json()["content"], "Hi");
}

TEST(Llama, DescribesTheServer) {
  ServerOptions options;
  options.max_running = 3;
  RunningServer running(options, {}, spdlog::level::off, "{{ messages }}");
  HttpClient client(running.port());
  const Json props = client.call("GET", "/props").json();
  EXPECT_EQ(props["total_slots"], 3);
  EXPECT_EQ(props["model_path"], "scripted");
  EXPECT_EQ(props["chat_template"], "{{ messages }}");
  EXPECT_EQ(props["modalities"]["vision"], false);
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], 100'000);
  EXPECT_EQ(props["default_generation_settings"]["params"]["temperature"], 1.0);
  const Json slots = client.call("GET", "/slots").json();
  ASSERT_EQ(slots.size(), 3u);
  EXPECT_EQ(slots[2]["id"], 2);
  EXPECT_EQ(slots[0]["is_processing"], false);
  // A client may send back what it was told.
  Json repeated = props["default_generation_settings"]["params"];
  repeated["prompt"] = "Hi";
  const HttpAnswer answer = client.post(kPath, repeated.dump());
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(client.post("/props", "{}").status, 405);
  const HttpAnswer rendered = client.post("/apply-template", chat_body());
  EXPECT_EQ(rendered.json(), Json::parse(R"({"prompt": "Hi"})"));
  EXPECT_EQ(client.post("/apply-template", "{}").error_param(), "messages");
  EXPECT_EQ(running.model.submitted(), 1u);
}

}  // namespace
}  // namespace quire
