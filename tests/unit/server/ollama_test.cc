// Ollama's API over loopback.
#include <gtest/gtest.h>

#include "unit/server/running_server.h"

namespace quire {
namespace {

constexpr const char* kHi = R"("messages": [{"role": "user", "content": "Hi"}])";
constexpr const char* kWeatherTool = R"("tools": [{"type": "function", "function": {"name": "weather"}}])";
constexpr const char* kThinks = "{{ messages }} <think> </think> {{ tools }}";

std::string ask(const std::string& fields = "") {
  return "{" + std::string(kHi) + (fields.empty() ? "" : ", ") + fields + "}";
}

std::vector<Json> json_lines_of(const HttpAnswer& answer) {
  EXPECT_EQ(answer.headers.at("content-type"), "application/x-ndjson");
  EXPECT_TRUE(answer.body.ends_with('\n'));
  std::vector<Json> lines;
  for (size_t at = 0; at < answer.body.size();) {
    const size_t end = answer.body.find('\n', at);
    lines.push_back(Json::parse(answer.body.substr(at, end - at)));
    at = end + 1;
  }
  return lines;
}

// What the lines of a chat say together: the message of a whole answer.
Json joined(const std::vector<Json>& lines) {
  Json message = {{"role", "assistant"}, {"content", ""}};
  for (const Json& line : lines) {
    EXPECT_EQ(line["done"], &line == &lines.back());
    EXPECT_EQ(line["message"]["role"], "assistant");
    for (const char* text : {"content", "thinking"}) {
      if (line["message"].contains(text)) {
        message[text] = message.value(text, "") + line["message"][text].get<std::string>();
      }
    }
    for (const Json& call : line["message"].value("tool_calls", Json::array())) message["tool_calls"].push_back(call);
  }
  return message;
}

void erase_ids(Json& message) {
  for (Json& call : message["tool_calls"]) EXPECT_TRUE(call["id"].get<std::string>().starts_with("call_"));
  for (Json& call : message["tool_calls"]) call.erase("id");
}

TEST(Ollama, AnswersAChatWhole) {
  RunningServer running;
  HttpClient client(running.port());
  const HttpAnswer answer = client.post("/api/chat", ask(R"("stream": false, "model": "scripted:latest")"));
  EXPECT_EQ(answer.headers.at("content-type"), "application/json");
  Json json = answer.json();
  const auto created = json["created_at"].get<std::string>();
  EXPECT_EQ(created.size(), std::string("2026-01-01T00:00:00.000000Z").size());
  EXPECT_TRUE(created.starts_with("20") && created.ends_with("Z"));
  json.erase("created_at");
  EXPECT_EQ(json, Json::parse(R"({"model": "scripted:latest", "message": {"role": "assistant", "content": "Hello"},
      "done": true, "done_reason": "stop", "total_duration": 2000000, "load_duration": 0, "prompt_eval_count": 2,
      "prompt_eval_duration": 500000, "eval_count": 5, "eval_duration": 1000000})"));
  EXPECT_EQ(client.post("/api/chat", ask(R"("stream": false, "options": {"num_predict": 2})")).json()["done_reason"],
            "length");
}

TEST(Ollama, StreamsLines) {
  RunningServer running;
  HttpClient client(running.port());
  const std::vector<Json> lines = json_lines_of(client.post("/api/chat", ask()));
  EXPECT_EQ(joined(lines), Json::parse(R"({"role": "assistant", "content": "Hello"})"));
  EXPECT_EQ(lines.back()["done_reason"], "stop");
  EXPECT_EQ(lines.back()["eval_count"], 5);
  EXPECT_EQ(lines.back()["message"]["content"], "");
  EXPECT_FALSE(lines.front().contains("eval_count"));
}

TEST(Ollama, AnswersAPrompt) {
  RunningServer running({}, {}, spdlog::level::off, kThinks);
  running.model.answer = "<think>Hm</think>Oh";
  HttpClient client(running.port());
  const Json whole = client.post("/api/generate", R"({"prompt": "Hi", "system": "Be ", "stream": false})").json();
  EXPECT_EQ(whole["response"], "Oh");
  EXPECT_EQ(whole["thinking"], "Hm");
  EXPECT_EQ(running.model.decode(running.model.last_request().prompt), "Be Hi");
  std::string response, thinking;
  for (const Json& line : json_lines_of(client.post("/api/generate", R"({"prompt": "Hi"})"))) {
    response += line["response"].get<std::string>();
    thinking += line.value("thinking", "");
  }
  EXPECT_EQ(response, "Oh");
  EXPECT_EQ(thinking, "Hm");
  EXPECT_EQ(client.post("/api/generate", R"({"prompt": "Hi", "raw": true, "stream": false})").json()["response"],
            "<think>Hm</think>Oh")
      << "a raw answer is the model's";
}

TEST(Ollama, PromptsOfAModelWithoutATemplateAreItsOwn) {
  RunningServer running;
  HttpClient client(running.port());
  EXPECT_EQ(client.post("/api/generate", R"({"prompt": "Hi", "stream": false})").json()["response"], "Hello");
  EXPECT_EQ(running.model.decode(running.model.last_request().prompt), "Hi");
  const HttpAnswer refused = client.post("/api/generate", R"({"prompt": "Hi", "system": "Be"})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_TRUE(refused.json()["error"].get<std::string>().starts_with("system: "));
}

TEST(Ollama, ReturnsCallsWithTheirArgumentsAsObjects) {
  RunningServer running({}, {}, spdlog::level::off,
                        "{{ messages }} <think> </think> {{ tools }} <tool_call> {\"name\"");
  running.model.answer =
      "<think>Hm</think>Look."
      "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>"
      "<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n</tool_call>";
  HttpClient client(running.port());
  const Json expected = Json::parse(R"({"role": "assistant", "content": "Look.", "thinking": "Hm", "tool_calls": [
      {"function": {"index": 0, "name": "weather", "arguments": {"city": "Oslo"}}},
      {"function": {"index": 1, "name": "weather", "arguments": {}}}]})");
  const Json answer = client.post("/api/chat", ask(kWeatherTool + std::string(R"(, "stream": false)"))).json();
  Json whole = answer["message"];
  erase_ids(whole);
  EXPECT_EQ(whole, expected);
  EXPECT_EQ(answer["done_reason"], "stop");
  Json streamed = joined(json_lines_of(client.post("/api/chat", ask(kWeatherTool))));
  erase_ids(streamed);
  EXPECT_EQ(streamed, expected);
  const Json cut =
      client.post("/api/chat", ask(kWeatherTool + std::string(R"(, "stream": false, "options": {"num_predict": 70})")))
          .json();
  EXPECT_EQ(cut["done_reason"], "length");
  ASSERT_EQ(cut["message"]["tool_calls"].size(), 1u);
  EXPECT_TRUE(cut["message"]["tool_calls"][0]["function"]["arguments"].contains("INVALID_JSON")) << cut;
}

TEST(Ollama, ThinksOnlyWhereTheModelDoes) {
  {
    RunningServer running;
    HttpClient client(running.port());
    const HttpAnswer refused = client.post("/api/chat", ask(R"("think": true)"));
    EXPECT_EQ(refused.status, 400);
    EXPECT_TRUE(refused.json()["error"].get<std::string>().starts_with("think: "));
    EXPECT_EQ(client.post("/api/chat", ask(R"("think": false)")).status, 200);
  }
  RunningServer running({}, {}, spdlog::level::off, kThinks);
  EXPECT_EQ(HttpClient(running.port()).post("/api/chat", ask(R"("think": "low")")).status, 200);
}

TEST(Ollama, ReturnsLogprobs) {
  RunningServer running;
  HttpClient client(running.port());
  const std::string two = R"("logprobs": true, "top_logprobs": 1, "options": {"num_predict": 2})";
  const Json expected = Json::parse(R"([{"token": "H", "logprob": -0.5, "bytes": [72],
        "top_logprobs": [{"token": "H", "logprob": -0.5, "bytes": [72]}]},
      {"token": "e", "logprob": -0.5, "bytes": [101], "top_logprobs": [{"token": "e", "logprob": -0.5, "bytes": [101]}]}])");
  EXPECT_EQ(client.post("/api/chat", ask(two + R"(, "stream": false)")).json()["logprobs"], expected);
  Json streamed = Json::array();
  for (const Json& line : json_lines_of(client.post("/api/chat", ask(two)))) {
    for (const Json& token : line.value("logprobs", Json::array())) streamed.push_back(token);
  }
  EXPECT_EQ(streamed, expected);
}

TEST(Ollama, LoadsWithoutAQuestion) {
  RunningServer running;
  HttpClient client(running.port());
  Json chat = client.post("/api/chat", R"({"model": "scripted"})").json();
  chat.erase("created_at");
  EXPECT_EQ(chat, Json::parse(R"({"model": "scripted", "message": {"role": "assistant", "content": ""}, "done": true,
      "done_reason": "load"})"));
  EXPECT_EQ(client.post("/api/generate", R"({"model": "scripted", "keep_alive": 0})").json()["response"], "");
  EXPECT_EQ(running.model.submitted(), 0u);
}

TEST(Ollama, Embeds) {
  RunningServer running;
  HttpClient client(running.port());
  Json json = client.post("/api/embed", R"({"model": "scripted:latest", "input": ["ab", "c"]})").json();
  json.erase("total_duration");
  EXPECT_EQ(json, Json::parse(R"({"model": "scripted:latest", "embeddings": [[3.0, 4.0], [3.0, 4.0]],
      "load_duration": 0, "prompt_eval_count": 3})"));
  EXPECT_EQ(client.post("/api/embeddings", R"({"prompt": "ab"})").body, R"({"embedding":[3.0,4.0]})");
}

TEST(Ollama, EmbedsTheFirstTokensOfATextThatIsTooLong) {
  RunningServer running;
  HttpClient client(running.port());
  const std::string text = "a" + std::string(100'000, 'b');
  EXPECT_EQ(client.post("/api/embed", R"({"input": ")" + text + "\"}").json()["prompt_eval_count"], 100'000);
  EXPECT_EQ(running.model.last_request().prompt.front(), 'a');
  const HttpAnswer refused = client.post("/api/embed", R"({"truncate": false, "input": ")" + text + "\"}");
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.json()["error"].get<std::string>().find("your input resulted in 100001 tokens"), std::string::npos);
}

TEST(Ollama, FailsInItsOwnShape) {
  ServerOptions options;
  options.max_running = 1;
  RunningServer running(options);
  HttpClient client(running.port());
  const auto error = [](const HttpAnswer& answer, int status) {
    EXPECT_EQ(answer.status, status);
    EXPECT_EQ(answer.json().size(), 1u);
    return answer.json()["error"].get<std::string>();
  };
  EXPECT_EQ(error(client.post("/api/chat", ask(R"("stream": 1)")), 400), "stream: expected true or false, found 1");
  EXPECT_EQ(error(client.post("/api/chat", ask(R"("model": "x")")), 404),
            "model \"x\" not found; GET /api/tags lists the served models");
  EXPECT_EQ(error(client.post("/api/show", R"({"model": "x"})"), 404),
            "model \"x\" not found; GET /api/tags lists the served models");
  error(client.post("/api/chat", "{"), 400);
  error(client.post("/api/pull", R"({"model": "x"})"), 404);
  error(client.post("/api/pull", "{}"), 400);
  EXPECT_EQ(client.post("/api/pull", R"({"model": "scripted:latest"})").body, R"({"status":"success"})");
  error(client.get("/api/chat"), 405);
  running.model.fail_at_token = 0;
  EXPECT_EQ(error(client.post("/api/chat", ask()), 500), "the script failed");
}

TEST(Ollama, EndsABrokenStreamWithALine) {
  RunningServer running;
  running.model.fail_at_token = 3;
  running.model.token_time = std::chrono::milliseconds(20);  // so that the stream has begun
  HttpClient client(running.port());
  const std::vector<Json> lines = json_lines_of(client.post("/api/chat", ask()));
  EXPECT_GT(lines.size(), 1u);
  EXPECT_EQ(lines.back(), Json::parse(R"({"error": "the script failed"})"));
}

TEST(Ollama, CancelsTheAnswerOfAClientThatLeaves) {
  RunningServer running;
  running.model.endless = true;
  running.model.token_time = std::chrono::milliseconds(1);
  {
    HttpClient client(running.port());
    client.send(HttpClient::request("POST", "/api/chat", ask()));
    ASSERT_TRUE(client.wait_for_bytes(500));
  }
  EXPECT_TRUE(eventually([&] { return running.model.running() == 0 && running.model.cancels() > 0; }));
}

TEST(Ollama, ListsTheModelUnderItsNames) {
  ServerOptions options;
  options.model_names = {"first", "library/second:7b"};
  RunningServer running(options, {}, spdlog::level::off, kThinks);
  running.model.infills = true;
  HttpClient client(running.port());
  const Json tags = client.get("/api/tags").json()["models"];
  ASSERT_EQ(tags.size(), 2u);
  EXPECT_EQ(tags[0]["name"], "first:latest");
  EXPECT_EQ(tags[0]["model"], "first:latest");
  EXPECT_EQ(tags[1]["name"], "library/second:7b");
  EXPECT_EQ(tags[0]["digest"].get<std::string>().size(), 64u) << "clients cut it to twelve digits";
  EXPECT_EQ(tags[0]["digest"], tags[1]["digest"]) << "it is one model";
  EXPECT_EQ(tags[0]["capabilities"], Json::parse(R"(["completion", "tools", "thinking", "insert"])"));
  EXPECT_TRUE(tags[0]["details"].contains("family"));
  const Json loaded = client.get("/api/ps").json()["models"];
  EXPECT_EQ(loaded[0]["name"], "first:latest");
  EXPECT_EQ(loaded[0]["context_length"], 100'000);
  const Json shown = client.post("/api/show", R"({"model": "first", "verbose": true})").json();
  EXPECT_EQ(shown["template"], kThinks);
  EXPECT_EQ(shown["capabilities"], tags[0]["capabilities"]) << "clients trust either";
  EXPECT_EQ(shown["model_info"]["general.architecture"], shown["details"]["family"]);
  EXPECT_EQ(client.get("/api/version").json().size(), 1u);
}

TEST(Ollama, AnswersAtTheRootInPlainTextIfAskedForIt) {
  RunningServer running;
  HttpClient client(running.port());
  const HttpAnswer text = client.call("GET", "/", {}, "Accept: text/plain\r\n");
  EXPECT_EQ(text.body, "Ollama is running");
  EXPECT_TRUE(text.headers.at("content-type").starts_with("text/plain"));
  EXPECT_EQ(client.call("HEAD", "/", {}, "Accept: text/plain\r\n").status, 200);
  for (const char* accept : {"", "Accept: */*\r\n", "Accept: text/html, text/plain\r\n"}) {
    EXPECT_TRUE(client.call("GET", "/", {}, accept).headers.at("content-type").starts_with("text/html")) << accept;
  }
  EXPECT_EQ(client.call("HEAD", "/").status, 200);
}

}  // namespace
}  // namespace quire
