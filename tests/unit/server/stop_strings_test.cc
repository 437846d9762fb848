// Stop strings concern the answer, not thoughts and calls, in each API, whole and streamed.
#include <gtest/gtest.h>

#include "server/api/answer/answer_reader.h"
#include "unit/server/running_server.h"

namespace quire {
namespace {

constexpr const char* kNoteTool = R"("tools": [{"type": "function", "function": {"name": "note", "parameters":
    {"type": "object", "properties": {"text": {"type": "string"}}}}}])";
constexpr const char* kNoteCall =
    "<tool_call>\n{\"name\": \"note\", \"arguments\": {\"text\": \"a STOP b\"}}\n</tool_call>";

struct StopServer {
  explicit StopServer(std::string answer) : running(qwen3_options()), client(running.port()) {
    running.model.answer = std::move(answer);
  }
  Json chat(const std::string& fields) { return client.post(kChatPath, chat_body(fields)).json()["choices"][0]; }
  std::vector<Json> events(std::string_view path, const std::string& body) { return client.post(path, body).events(); }
  // What a streamed chat says, and how it ends.
  std::pair<std::string, Json> streamed(const std::string& fields) {
    std::string content;
    Json last;
    for (const Json& event : events(kChatPath, chat_body(fields + R"(, "stream": true)"))) {
      last = event["choices"][0];
      content += last["delta"].value("content", "");
    }
    return {content, last};
  }

  RunningServer running;
  HttpClient client;
};

TEST(StopStrings, InThoughtsDoNotEndTheAnswer) {
  StopServer server("<think>\nThe Question: is\n\nplain.\n</think>\n\nBlue. Question: two");
  const std::string stop = R"("stop": ["Question:", "\n\n"])";
  const Json choice = server.chat(stop);
  EXPECT_EQ(choice["message"]["content"], "Blue. ");
  EXPECT_EQ(choice["message"]["reasoning_content"], "The Question: is\n\nplain.");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["stop_reason"], "Question:");
  const auto [content, last] = server.streamed(stop);
  EXPECT_EQ(content, "Blue. ");
  EXPECT_EQ(last["finish_reason"], "stop");
  EXPECT_EQ(last["stop_reason"], "Question:");
  EXPECT_EQ(server.chat(stop + R"(, "include_stop_str_in_output": true)")["message"]["content"], "Blue. Question:");
  EXPECT_EQ(server.chat(stop + R"(, "include_reasoning": false)")["message"]["content"], "Blue. ");
  EXPECT_EQ(server.chat(stop + R"(, "min_tokens": 60)")["message"]["content"], "Blue. Question: two");
}

TEST(StopStrings, InCallsDoNotCutThem) {
  StopServer server("Look STO. " + std::string(kNoteCall));
  const std::string fields = std::string(kNoteTool) + R"(, "stop": "STOP")";
  const Json choice = server.chat(fields);
  EXPECT_EQ(choice["message"]["content"], "Look STO.");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], R"({"text": "a STOP b"})");
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  const auto [content, last] = server.streamed(fields);
  EXPECT_EQ(content, "Look STO.");
  EXPECT_EQ(last["finish_reason"], "tool_calls");
  EXPECT_EQ(server.chat(R"("stop": "STOP")")["message"]["content"],
            "Look STO. <tool_call>\n{\"name\": \"note\", \"arguments\": {\"text\": \"a ")
      << "without tools it is text";
}

TEST(StopStrings, AfterACallEndTheText) {
  StopServer server(std::string(kNoteCall) + "\nDone STOP there");
  const Json choice = server.chat(std::string(kNoteTool) + R"(, "stop": "STOP")");
  EXPECT_EQ(choice["message"]["content"], "\n\nDone ");
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u);
}

TEST(StopStrings, InWhatTurnsOutToBeTextEndIt) {
  StopServer server("<tool_call>{\"name\": \"note\", \"x STOP y\"");
  const std::string fields = std::string(kNoteTool) + R"(, "stop": "STOP")";
  EXPECT_EQ(server.chat(fields)["message"]["content"], "<tool_call>{\"name\": \"note\", \"x ");
  EXPECT_EQ(server.chat(fields)["stop_reason"], "STOP");
}

TEST(StopStrings, ConcernEachChoice) {
  StopServer server("<think>STOP</think>One STOP two");
  const Json choices = server.client.post(kChatPath, chat_body(R"("stop": "STOP", "n": 3)")).json()["choices"];
  ASSERT_EQ(choices.size(), 3u);
  for (const Json& choice : choices) EXPECT_EQ(choice["message"]["content"], "One ");
}

TEST(StopStrings, OfMessages) {
  StopServer server("<think>STOP</think>One STOP two");
  const std::string body =
      R"({"max_tokens": 1000, "messages": [{"role": "user", "content": "Hi"}], "stop_sequences": ["STOP"])";
  const Json message = server.client.post("/v1/messages", body + "}").json();
  EXPECT_EQ(message["content"][0]["thinking"], "STOP");
  EXPECT_EQ(message["content"][1]["text"], "One ");
  EXPECT_EQ(message["stop_reason"], "stop_sequence");
  EXPECT_EQ(message["stop_sequence"], "STOP");
  std::string text;
  Json last;
  for (const Json& event : server.events("/v1/messages", body + R"(, "stream": true})")) {
    if (event["type"] == "content_block_delta") text += event["delta"].value("text", "");
    if (event["type"] == "message_delta") last = event["delta"];
  }
  EXPECT_EQ(text, "One ");
  EXPECT_EQ(last["stop_sequence"], "STOP");
}

TEST(StopStrings, OfResponses) {
  StopServer server("<think>STOP</think>One STOP two");
  const Json response = server.client.post("/v1/responses", R"({"input": "Hi", "stop": ["STOP"]})").json();
  EXPECT_EQ(response["output"].back()["content"][0]["text"], "One ");
  std::string text;
  for (const Json& event : server.events("/v1/responses", R"({"input": "Hi", "stop": ["STOP"], "stream": true})")) {
    if (event["type"] == "response.output_text.delta") text += event["delta"].get<std::string>();
  }
  EXPECT_EQ(text, "One ");
}

TEST(StopStrings, OfOllama) {
  StopServer server("<think>STOP</think>One STOP two");
  std::string text;
  for (const Json& line : server.events("/api/chat", R"({"messages": [{"role": "user", "content": "Hi"}],
      "options": {"stop": ["STOP"]}})")) {
    text += line["message"].value("content", "");
  }
  EXPECT_EQ(text, "One ");
}

TEST(StopStrings, OfPlainCompletionsAreTheEngines) {
  StopServer server("<think>STOP</think>");
  server.client.post("/v1/completions", R"({"prompt": "Hi", "stop": "STOP"})");
  EXPECT_FALSE(server.running.model.last_request().stop_finder);
  EXPECT_EQ(server.running.model.last_request().sampling.stop, std::vector<std::string>{"STOP"});
}

// The reader finds the same stop string at the same place however the answer is cut into tokens.
TEST(PieceReaders, GiveTheSamePiecesForAnyTokens) {
  AnswerReading reading;
  reading.format = choose_format(
      "", [](std::string_view) { return false; }, "hermes", "qwen3");
  reading.options.tools = std::make_shared<ToolList>(ToolList{{"note"}});
  reading.stops = prepare_stops({"END", "\n\n"});
  const auto shared = std::make_shared<const AnswerReading>(reading);
  const auto read = [&](std::string_view answer, size_t chunk) {
    PieceReader reader(shared);
    std::vector<AnswerPiece> pieces;
    for (; !answer.empty() && !reader.stop(); answer.remove_prefix(std::min(chunk, answer.size()))) {
      reader.add(answer.substr(0, chunk), true, pieces);
    }
    if (!reader.stop()) reader.end(true, pieces);
    std::string text;
    for (const AnswerPiece& piece : pieces) text += piece.kind == AnswerPiece::kText ? piece.text : "";
    return text + std::to_string(reader.stop().value_or(9));
  };
  for (const char* answer : {"a E EN END b", "<think>END</think>\n\na\n\nb",
                             "a EN<tool_call>{\"name\": \"note\", \"arguments\": "
                             "{\"text\": \"END\"}}</tool_call>D",
                             "a <tool_call>END", "EN"}) {
    const std::string whole = read(answer, SIZE_MAX);
    for (size_t chunk = 1; chunk < 12; ++chunk) EXPECT_EQ(read(answer, chunk), whole) << answer << ", " << chunk;
  }
}

}  // namespace
}  // namespace quire
