// Every endpoint over loopback, in the shape that its clients expect.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "server/api/request/fields.h"
#include "server/endpoints/openapi.h"
#include "unit/server/parse_request.h"
#include "unit/server/running_server.h"

namespace quire {
namespace {

// {type, data} of each event of a stream that names its types.
std::vector<Json> typed_events(const std::string& body) {
  std::vector<Json> found;
  for (size_t at = 0; at < body.size();) {
    const size_t line = body.find('\n', at), end = body.find("\n\n", at);
    if (line == body.npos || end == body.npos || body.compare(at, 7, "event: ") != 0) {
      ADD_FAILURE() << "broken stream: " << body.substr(at);
      return found;
    }
    const Json data = Json::parse(body.substr(line + 7, end - line - 7));
    EXPECT_EQ(data["type"], body.substr(at + 7, line - at - 7));
    found.push_back(data);
    at = end + 2;
  }
  return found;
}

std::vector<std::string> types_of(const std::vector<Json>& events) {
  std::vector<std::string> types;
  for (const Json& event : events) {
    const std::string type = event["type"];
    if (types.empty() || types.back() != type) types.push_back(type);  // deltas are many
  }
  return types;
}

TEST(Endpoints, TokenizeAndDetokenize) {
  RunningServer running;
  HttpClient client(running.port());
  EXPECT_EQ(client.post("/tokenize", R"({"prompt": "Hi"})").json(),
            Json::parse(R"({"count": 2, "max_model_len": 100000, "tokens": [72, 105], "token_strs": null})"));
  EXPECT_EQ(client.post("/tokenize", R"({"messages": [{"role": "user", "content": "Hi"}], "return_token_strs": true})")
                .json()["token_strs"],
            Json::parse(R"(["H", "i"])"));
  EXPECT_EQ(client.post("/tokenize", R"({"prompt": ""})").json()["count"], 0);
  EXPECT_EQ(client.post("/detokenize", R"({"tokens": [72, 105]})").body, R"({"prompt":"Hi","content":"Hi"})");
  EXPECT_EQ(client.post("/detokenize", R"({"tokens": []})").body, R"({"prompt":"","content":""})");
  EXPECT_EQ(client.post("/detokenize", R"({"tokens": [256]})").error_param(), "tokens[0]");
  EXPECT_EQ(running.model.submitted(), 0u);
}

TEST(Endpoints, Embeddings) {
  RunningServer running;
  HttpClient client(running.port());
  Json json = client.post("/v1/embeddings", R"({"input": ["ab", [1, 2, 3]]})").json();
  EXPECT_TRUE(json["id"].get<std::string>().starts_with("embd-"));
  EXPECT_GT(json["created"], 0);
  json.erase("id");
  json.erase("created");
  EXPECT_EQ(json, Json::parse(R"({"object": "list",
      "data": [{"object": "embedding", "index": 0, "embedding": [3.0, 4.0]},
               {"object": "embedding", "index": 1, "embedding": [3.0, 4.0]}],
      "model": "scripted", "usage": {"prompt_tokens": 5, "total_tokens": 5}})"));
  EXPECT_EQ(client.post("/v1/embeddings", R"({"input": "a", "pooling": "last"})").json()["data"][0]["embedding"],
            Json::parse("[3.0, -4.0]"));
  // 3.0f and 4.0f: 00004040 00008040
  EXPECT_EQ(
      client.post("/v1/embeddings", R"({"input": "a", "encoding_format": "base64"})").json()["data"][0]["embedding"],
      "AABAQAAAgEA=");
  EXPECT_EQ(client.post("/v1/embeddings", R"({"input": ""})").error_param(), "input");
  EXPECT_TRUE(eventually([&] { return running.server->models().admission()->inside() == 0; }));
}

TEST(Endpoints, EmbeddingsTakeMixedAndObjectPrompts) {
  RunningServer running;
  HttpClient client(running.port());
  for (const char* input : {R"([65, "bc", 68])", R"([[65, "bc"], "d"])", R"({"prompt_string": "abcd"})"}) {
    const Json json = client.post("/v1/embeddings", R"({"input": )" + std::string(input) + "}").json();
    EXPECT_EQ(json["usage"]["prompt_tokens"], 4) << input;
  }
  EXPECT_EQ(client.post("/v1/embeddings", R"({"input": "a", "dimensions": 2})").status, 200);
  EXPECT_EQ(client.post("/v1/embeddings", R"({"input": "a", "dimensions": 3})").error_param(), "dimensions");
}

// Clients build paths from base URLs with and without "/v1" and a slash at the end.
TEST(Endpoints, AreFoundWithoutTheVersionAndWithSlashesAtTheEnd) {
  RunningServer running;
  HttpClient client(running.port());
  for (const char* path : {"/chat/completions", "/v1/chat/completions/", "/chat/completions//"}) {
    EXPECT_EQ(client.post(path, chat_body()).status, 200) << path;
  }
  EXPECT_EQ(client.post("/completions", R"({"prompt": "Hi"})").status, 200);
  EXPECT_EQ(client.post("/embeddings", R"({"input": "Hi"})").status, 200);
  EXPECT_EQ(client.post("/responses", R"({"input": "Hi"})").status, 200);
  EXPECT_EQ(client.post("/v1/tokenize", R"({"prompt": "Hi"})").status, 200);
  for (const char* path : {"/models", "/v1/models/", "/models/scripted", "/v1/health"}) {
    EXPECT_EQ(client.get(path).status, 200) << path;
  }
  EXPECT_EQ(client.post("/messages/", R"({"max_tokens": 1})").json()["type"], "error") << "in Anthropic's shape";
  for (const char* path : {"/v1", "/v2/models", "/v1/v1/models", "/chat"}) {
    EXPECT_EQ(client.get(path).status, 404) << path;
  }
}

TEST(Endpoints, CountTokensHasAnthropicsShape) {
  RunningServer running;
  HttpClient client(running.port());
  EXPECT_EQ(client
                .post("/v1/messages/count_tokens",
                      R"({"model": "scripted", "system": "Be", "messages": [{"role": "user", "content": "Hi"}]})")
                .body,
            R"({"input_tokens":4})");
  EXPECT_EQ(client.post("/v1/messages/count_tokens", "{}").json(), Json::parse(R"({"type": "error",
      "error": {"type": "invalid_request_error", "message": "messages: is required"}})"));
  EXPECT_EQ(running.model.submitted(), 0u);
}

TEST(Endpoints, EchoWithLogprobsScoresThePrompt) {
  RunningServer running;
  HttpClient client(running.port());
  // What lm_eval's local-completions sends.
  const Json json = client
                        .post(kCompletionPath,
                              R"({"prompt": [[65, 66], [67]], "echo": true, "logprobs": 1, "max_tokens": 1,
                                  "temperature": 0, "seed": 1234})")
                        .json();
  ASSERT_EQ(json["choices"].size(), 2u);
  EXPECT_EQ(json["choices"][0]["text"], "ABH");
  EXPECT_EQ(json["choices"][0]["logprobs"], Json::parse(R"({"tokens": ["A", "B", "H"],
      "token_logprobs": [null, -1.0, -0.5], "top_logprobs": [null, {"C": -0.5, "B": -1.0}, {"H": -0.5}],
      "text_offset": [0, 1, 2]})"));
  EXPECT_EQ(json["choices"][1]["logprobs"]["token_logprobs"], Json::parse("[null, -0.5]"));

  const Json prompt_alone =
      client.post(kCompletionPath, R"({"prompt": "AB", "echo": true, "logprobs": 0, "max_tokens": 0, "n": 2})").json();
  for (const Json& choice : prompt_alone["choices"]) {
    EXPECT_EQ(choice["text"], "AB");
    EXPECT_EQ(choice["finish_reason"], "length");
    EXPECT_EQ(choice["logprobs"]["top_logprobs"], Json::parse(R"([null, {"B": -1.0}])"));
  }
  EXPECT_EQ(prompt_alone["usage"]["completion_tokens"], 0);

  const auto streamed = events(
      client.post(kCompletionPath, R"({"prompt": "AB", "echo": true, "logprobs": 0, "max_tokens": 1, "stream": true})")
          .body);
  EXPECT_EQ(Json::parse(streamed[0])["choices"][0]["logprobs"]["token_logprobs"], Json::parse("[null, -1.0]"));
  EXPECT_EQ(Json::parse(streamed[1])["choices"][0]["logprobs"]["text_offset"], Json::parse("[2]"));

  const Json cut =
      client.post(kCompletionPath, R"({"prompt": "XXAB", "echo": true, "max_tokens": 1, "truncate_prompt_tokens": 2})")
          .json();
  EXPECT_EQ(cut["choices"][0]["text"], "ABH");
}

TEST(Endpoints, PromptLogprobsHaveVllmsShape) {
  RunningServer running;
  HttpClient client(running.port());
  const Json expected = Json::parse(R"([null, {"67": {"logprob": -0.5, "rank": 1, "decoded_token": "C"},
                                               "66": {"logprob": -1.0, "rank": null, "decoded_token": "B"}}])");
  const Json completion =
      client.post(kCompletionPath, R"({"prompt": "AB", "prompt_logprobs": 1, "max_tokens": 1, "n": 2})").json();
  EXPECT_EQ(completion["choices"][0]["prompt_logprobs"], expected);
  EXPECT_EQ(completion["choices"][1]["prompt_logprobs"], expected);
  EXPECT_EQ(completion["choices"][0]["logprobs"], nullptr);
  const Json chat = client
                        .post(kChatPath, R"({"messages": [{"role": "user", "content": "AB"}], "prompt_logprobs": 1,
                                             "max_tokens": 1})")
                        .json();
  EXPECT_EQ(chat["prompt_logprobs"], expected);
  const HttpAnswer many =
      client.post(kCompletionPath, R"({"prompt_logprobs": 1000, "prompt": ")" + std::string(1000, 'x') + "\"}");
  EXPECT_EQ(many.status, 400);
  EXPECT_EQ(many.error_param(), "prompt_logprobs");
}

TEST(Endpoints, ReturnTokenIdsOnRequest) {
  RunningServer running;
  HttpClient client(running.port());
  const Json choice = client.post(kCompletionPath, R"({"prompt": "AB", "return_token_ids": true, "max_tokens": 2})")
                          .json()["choices"][0];
  EXPECT_EQ(choice["prompt_token_ids"], Json::parse("[65, 66]"));
  EXPECT_EQ(choice["token_ids"], Json::parse("[72, 101]"));
  const Json chat = client.post(kChatPath, chat_body(R"("return_token_ids": true, "max_tokens": 2)")).json();
  EXPECT_EQ(chat["prompt_token_ids"], Json::parse("[72, 105]"));
  EXPECT_EQ(chat["choices"][0]["token_ids"], Json::parse("[72, 101]"));
  const auto streamed =
      events(client.post(kChatPath, chat_body(R"("return_token_ids": true, "max_tokens": 1, "stream": true)")).body);
  EXPECT_EQ(Json::parse(streamed[0])["choices"][0]["prompt_token_ids"], Json::parse("[72, 105]"));
  EXPECT_EQ(Json::parse(streamed[1])["choices"][0]["token_ids"], Json::parse("[72]"));
}

TEST(Endpoints, CountCachedTokensOncePerPrompt) {
  RunningServer running;
  running.model.cached_tokens = 1;
  HttpClient client(running.port());
  EXPECT_EQ(client.post(kCompletionPath, R"({"prompt": ["AB", "CD"], "n": 3})")
                .json()["usage"]["prompt_tokens_details"]["cached_tokens"],
            2);
  const auto streamed =
      events(client.post(kChatPath, chat_body(R"("stream": true, "stream_options": {"include_usage": true})")).body);
  EXPECT_EQ(Json::parse(streamed[streamed.size() - 2])["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
}

TEST(Endpoints, PassEveryFieldToTheEngine) {
  RunningServer running;
  HttpClient client(running.port());
  client.post(kChatPath, chat_body(R"("priority": 7, "cache_salt": "s", "timeout": 3, "skip_special_tokens": false)"));
  const Request request = running.model.last_request();
  EXPECT_EQ(request.priority, 7);
  EXPECT_EQ(request.cache_salt, "s");
  EXPECT_EQ(request.timeout, 3);
  EXPECT_FALSE(request.sampling.skip_special_tokens);
}

TEST(Endpoints, Responses) {
  RunningServer running;
  running.model.cached_tokens = 1;
  HttpClient client(running.port());
  const Json json =
      client.post("/v1/responses", R"({"input": "Hi", "instructions": "Be", "temperature": 0.7, "store": false})")
          .json();
  EXPECT_TRUE(json["id"].get<std::string>().starts_with("resp_"));
  EXPECT_EQ(json["object"], "response");
  EXPECT_EQ(json["status"], "completed");
  EXPECT_EQ(json["instructions"], "Be");
  EXPECT_EQ(json["temperature"], 0.7);
  EXPECT_EQ(json["incomplete_details"], nullptr);
  EXPECT_EQ(json["output"][0]["content"],
            Json::parse(R"([{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}])"));
  EXPECT_EQ(json["usage"],
            Json::parse(R"({"input_tokens": 4, "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
      "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 9})"));
  const Json cut = client.post("/v1/responses", R"({"input": "Hi", "max_output_tokens": 2})").json();
  EXPECT_EQ(cut["status"], "incomplete");
  EXPECT_EQ(cut["incomplete_details"], Json::parse(R"({"reason": "max_output_tokens"})"));
  EXPECT_EQ(client.post("/v1/responses", R"({"input": "Hi", "store": true})").json()["store"], false);
}

TEST(Endpoints, ResponsesIncludeLogprobs) {
  RunningServer running;
  HttpClient client(running.port());
  const std::string ask =
      R"({"input": "Hi", "max_output_tokens": 1, "top_logprobs": 1, "include": ["message.output_text.logprobs"])";
  const Json expected = Json::parse(R"([{"token": "H", "logprob": -0.5, "bytes": [72],
      "top_logprobs": [{"token": "H", "logprob": -0.5, "bytes": [72]}]}])");
  EXPECT_EQ(client.post("/v1/responses", ask + "}").json()["output"][0]["content"][0]["logprobs"], expected);
  const auto streamed = typed_events(client.post("/v1/responses", ask + R"(, "stream": true})").body);
  for (const Json& event : streamed) {
    if (event["type"] == "response.output_text.delta") {
      EXPECT_EQ(event["logprobs"], expected);
    }
  }
  EXPECT_EQ(streamed.back()["response"]["output"][0]["content"][0]["logprobs"], expected);
}

TEST(Endpoints, StreamedResponsesHaveTheOfficialOrder) {
  RunningServer running;
  HttpClient client(running.port());
  const auto all = typed_events(client.post("/v1/responses", R"({"input": "Hi", "stream": true})").body);
  EXPECT_EQ(types_of(all), (std::vector<std::string>{
                               "response.created", "response.in_progress", "response.output_item.added",
                               "response.content_part.added", "response.output_text.delta", "response.output_text.done",
                               "response.content_part.done", "response.output_item.done", "response.completed"}));
  std::string text;
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i]["sequence_number"], i);
    if (all[i].contains("delta")) text += all[i]["delta"].get<std::string>();
  }
  EXPECT_EQ(text, "Hello");
  EXPECT_EQ(all.back()["response"]["output"][0]["content"][0]["text"], "Hello");
  EXPECT_EQ(all.front()["response"]["output"], Json::array());
  EXPECT_EQ(all.front()["response"]["id"], all.back()["response"]["id"]);
}

constexpr const char* kMessage = R"({"max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}])";

TEST(Endpoints, Messages) {
  RunningServer running;
  running.model.cached_tokens = 1;
  HttpClient client(running.port());
  const Json json = client.post("/v1/messages", std::string(kMessage) + "}").json();
  EXPECT_TRUE(json["id"].get<std::string>().starts_with("msg_"));
  EXPECT_EQ(json["type"], "message");
  EXPECT_EQ(json["content"], Json::parse(R"([{"type": "text", "text": "Hello"}])"));
  EXPECT_EQ(json["stop_reason"], "end_turn");
  EXPECT_EQ(json["usage"], Json::parse(R"({"input_tokens": 1, "cache_creation_input_tokens": 0,
                                           "cache_read_input_tokens": 1, "output_tokens": 5})"));
  EXPECT_EQ(client.post("/v1/messages", R"({"max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}]})")
                .json()["stop_reason"],
            "max_tokens");
}

TEST(Endpoints, MessagesFailInAnthropicsShape) {
  RunningServer running;
  HttpClient client(running.port());
  const HttpAnswer bad = client.post("/v1/messages", R"({"max_tokens": 1})");
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(bad.json(), Json::parse(R"({"type": "error", "error": {"type": "invalid_request_error",
                                        "message": "messages: is required"}})"));
  EXPECT_EQ(client.post("/v1/messages", std::string(kMessage) + R"(, "model": "x"})").json()["error"]["type"],
            "not_found_error");
  running.model.fail_at_token = 0;
  const HttpAnswer failed = client.post("/v1/messages", std::string(kMessage) + "}");
  EXPECT_EQ(failed.status, 500);
  EXPECT_EQ(failed.json()["error"]["type"], "api_error");
  EXPECT_TRUE(client.post(kChatPath, "{").json()["error"].contains("param"));  // the next request's shape is its own
}

TEST(Endpoints, StreamedMessagesHaveTheOfficialOrder) {
  RunningServer running;
  HttpClient client(running.port());
  const auto all = typed_events(client.post("/v1/messages", std::string(kMessage) + R"(, "stream": true})").body);
  EXPECT_EQ(types_of(all),
            (std::vector<std::string>{"message_start", "content_block_start", "ping", "content_block_delta",
                                      "content_block_stop", "message_delta", "message_stop"}));
  std::string text;
  for (const Json& event : all) {
    if (event["type"] == "content_block_delta") text += event["delta"]["text"].get<std::string>();
  }
  EXPECT_EQ(text, "Hello");
  EXPECT_EQ(all.front()["message"]["content"], Json::array());
  EXPECT_EQ(all[all.size() - 2]["delta"], Json::parse(R"({"stop_reason": "end_turn", "stop_sequence": null})"));
  EXPECT_EQ(all[all.size() - 2]["usage"]["output_tokens"], 5);
}

TEST(Endpoints, BrokenStreamsEndWithAnErrorOfTheirApi) {
  RunningServer running;
  running.model.fail_at_token = 3;
  running.model.token_time = std::chrono::milliseconds(20);  // so that the stream has begun
  for (const auto& [path, body] :
       {std::pair<const char*, std::string>{"/v1/responses", R"({"input": "Hi")"}, {"/v1/messages", kMessage}}) {
    HttpClient client(running.port());
    const auto all = typed_events(client.post(path, body + R"(, "stream": true})").body);
    ASSERT_FALSE(all.empty());
    EXPECT_EQ(all.back()["type"], "error") << path;
    EXPECT_NE(all.back().dump().find("the script failed"), std::string::npos);
  }
}

TEST(Endpoints, ReadyTokenizerAndVersion) {
  ServerOptions options;
  options.version = "1.2.3";
  RunningServer running(options);
  HttpClient client(running.port());
  EXPECT_EQ(client.get("/ready").body, R"({"status":"ready"})");
  EXPECT_EQ(client.get("/tokenizer_info").body, R"({"vocab_size":256})");
  EXPECT_EQ(client.get("/version").body, R"({"version":"1.2.3"})");
}

TEST(OpenApi, ListsEveryPathAndResolvesItsReferences) {
  RunningServer running;
  HttpClient client(running.port());
  const Json document = client.get("/openapi.json").json();
  EXPECT_EQ(document["openapi"], "3.1.0");
  for (const Api api : every_api()) {
    EXPECT_TRUE(document["paths"][std::string(api.path)].contains("post")) << api.path;
  }
  // Every documented path and method exists.
  for (const auto& [path, operations] : document["paths"].items()) {
    std::string allow;
    std::string target = path;
    if (const size_t id = target.find("{id}"); id != target.npos) target.replace(id, 4, "scripted");
    for (const auto& [method, operation] : operations.items()) {
      std::string upper = method;
      for (char& c : upper) c = static_cast<char>(std::toupper(c));
      EXPECT_NO_THROW(find_route(upper, target, allow)) << path;
    }
  }
  const std::function<void(const Json&)> resolve = [&](const Json& json) {
    if (json.is_object() && json.contains("$ref") && json["$ref"].is_string()) {
      const std::string pointer = json["$ref"].get<std::string>().substr(1);
      EXPECT_TRUE(document.contains(Json::json_pointer(pointer))) << pointer;
    }
    for (const Json& inner : json) {
      if (inner.is_structured()) resolve(inner);
    }
  };
  resolve(document);
}

// A value at a documented bound is accepted, one beyond it gets a 400.
TEST(OpenApi, DocumentsTheBoundsThatTheParserApplies) {
  int bounds = 0;
  for (const Api api : every_api()) {
    const Json schema = request_schema(api);
    for (const auto& [name, field] : schema["properties"].items()) {
      if (!field.contains("minimum")) continue;
      // Fields that a bound depends on: min_tokens <= max_tokens, best_of == n.
      const bool responses = api == Api::kResponse || api == Api::kCountInput;
      const bool unlimited = api == Api::kChat || responses || api == Api::kInfill || api == Api::kLlamaCompletion;
      const std::string with = name == "min_tokens" && !unlimited ? R"("max_tokens": 2147483647, )"
                               : name == "max_tokens"             ? R"("prompt_logprobs": 0, )"
                               : name == "n_predict"              ? R"("prompt_logprobs": 0, )"
                               : name != "top_logprobs"           ? ""
                               : responses                        ? R"("include": ["message.output_text.logprobs"], )"
                                                                  : R"("logprobs": true, )";
      const auto body = [&, name = name](const std::string& value) {
        const std::string n = name == "best_of" ? "\"n\": " + value + ", " : "";
        const bool needs =
            api == Api::kChat || api == Api::kCompletion || name == "min_tokens" || name == "top_logprobs";
        return body_with(api, (needs ? with : "") + n + '"' + name + "\": " + value);
      };
      const bool integer = field["type"] == "integer" || (field["type"].is_array() && field["type"][0] == "integer");
      for (const char* end : {"minimum", "maximum"}) {
        EXPECT_NO_THROW(parse(api, body(field[end].dump()))) << api.path << ' ' << name << ' ' << end;
        const double beyond =
            field[end].get<double>() + (std::string(end) == "minimum" ? -1 : 1) * (integer ? 1 : 0.01);
        if (std::abs(beyond) > 0x1p53) continue;  // seeds
        EXPECT_EQ(error_of(api, body(Json(beyond).dump())).status, 400) << name << ' ' << beyond;
        ++bounds;
      }
    }
  }
  EXPECT_GT(bounds, 80);
}

}  // namespace
}  // namespace quire
