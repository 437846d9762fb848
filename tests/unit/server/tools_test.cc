// Tools and reasoning, from the request to the answer, in each API.
#include <gtest/gtest.h>

#include "grammar/matcher.h"
#include "server/api/request/tools.h"
#include "unit/server/parse_request.h"
#include "unit/server/running_server.h"

namespace quire {
namespace {

constexpr std::string_view kTool =
    R"({"type": "function", "function": {"name": "weather", "description": "d", "parameters": {"type": "object",
        "properties": {"city": {"type": "string"}}, "required": ["city"]}}})";

std::string tools(const std::string& more = "") { return R"("tools": [)" + std::string(kTool) + "]" + more; }

TEST(Tools, OfAllApisHaveTheFormOfChats) {
  const Json expected = Json::array({Json::parse(kTool)});
  EXPECT_EQ(parse_chat(chat_with(tools())).tools, expected);
  const std::string schema = expected[0]["function"]["parameters"].dump();
  EXPECT_EQ(parse(Api::kResponse, body_with(Api::kResponse, R"("tools": [{"type": "function", "name": "weather",
                "description": "d", "strict": false, "parameters": )" +
                                                                schema + "}]"))
                .tools,
            expected);
  EXPECT_EQ(parse(Api::kMessage, body_with(Api::kMessage, R"("tools": [{"name": "weather", "description": "d",
                "cache_control": {"type": "ephemeral"}, "input_schema": )" +
                                                              schema + "}]"))
                .tools,
            expected);
  const ApiRequest old =
      parse_chat(chat_with(R"("functions": [{"name": "weather", "description": "d", "parameters": )" + schema + "}]"));
  EXPECT_EQ(old.tools, expected);
  EXPECT_TRUE(old.functions);
  EXPECT_FALSE(old.parallel_tool_calls);
}

TEST(Tools, AreHiddenByTheChoiceNone) {
  EXPECT_TRUE(parse_chat(chat_with(tools(R"(, "tool_choice": "none")"))).tools.is_null());
  EXPECT_FALSE(parse_chat(chat_with(tools(R"(, "tool_choice": "auto")"))).tools.is_null());
  EXPECT_TRUE(
      parse(Api::kMessage, body_with(Api::kMessage, R"("tools": [{"name": "f"}], "tool_choice": {"type": "none"})"))
          .tools.is_null());
  EXPECT_TRUE(parse_chat(chat_with(R"("tool_choice": "auto", "tools": [])")).tools.is_null()) << "as clients send it";
}

TEST(Tools, AreLimitedToTheAllowedOnes) {
  const std::string two =
      R"("tools": [{"type": "function", "function": {"name": "a"}}, {"type": "function", "function": {"name": "b"}}])";
  const Json tools = parse_chat(chat_with(two + R"(, "tool_choice": {"type": "allowed_tools", "allowed_tools":
      {"mode": "auto", "tools": [{"type": "function", "function": {"name": "b"}}]}})"))
                         .tools;
  ASSERT_EQ(tools.size(), 1u);
  EXPECT_EQ(tools[0]["function"]["name"], "b");
}

TEST(Tools, OfBadFormGetA400ThatNamesTheField) {
  const auto param = [](const std::string& fields) { return chat_error(chat_with(fields)).param; };
  const auto function = [&](const std::string& members) {
    return param(R"("tools": [{"type": "function", "function": {)" + members + "}}]");
  };
  EXPECT_EQ(param(R"("tools": {})"), "tools");
  EXPECT_EQ(param(R"("tools": [5])"), "tools[0]");
  EXPECT_EQ(param(R"("tools": [{"type": 5}])"), "tools[0].type");
  EXPECT_EQ(function(""), "tools[0].function.name");
  EXPECT_EQ(function(R"("name": "")"), "tools[0].function.name");
  EXPECT_EQ(function(R"("name": "a b")"), "tools[0].function.name");
  EXPECT_EQ(function(R"("name": ")" + std::string(kMaxToolName + 1, 'n') + '"'), "tools[0].function.name");
  EXPECT_EQ(function(R"("name": "f", "description": 5)"), "tools[0].function.description");
  EXPECT_EQ(function(R"("name": "f", "parameters": [5])"), "tools[0].function.parameters");
  EXPECT_EQ(function(R"("name": "f", "parameters": {"type": "string"})"), "tools[0].function.parameters.type");
  EXPECT_EQ(function(R"("name": "f", "parameters": {"properties": [5]})"), "tools[0].function.parameters.properties");
  EXPECT_EQ(function(R"("name": "f", "parameters": {"properties": {"a": 5}})"),
            "tools[0].function.parameters.properties.a");
  EXPECT_EQ(function(R"("name": "f", "parameters": {"required": [5]})"), "tools[0].function.parameters.required[0]");
  EXPECT_EQ(param(R"("tools": [{"function": {"name": "f"}}, {"function": {"name": "f"}}])"), "tools[1]");
  EXPECT_EQ(param(R"("tools": [{"function": {"name": "f"}}], "functions": [{"name": "g"}])"), "functions");
  EXPECT_EQ(param(R"("tool_choice": "maybe")"), "tool_choice");
  EXPECT_EQ(param(R"("tool_choice": {"type": "function", "function": {"name": "g"}})"), "tool_choice");
  EXPECT_EQ(param(R"("parallel_tool_calls": "no")"), "parallel_tool_calls");
  std::string many;
  for (size_t i = 0; i <= kMaxTools; ++i)
    many += std::string(i ? "," : "") + R"({"function": {"name": "f)" + std::to_string(i) + "\"}}";
  EXPECT_EQ(param("\"tools\": [" + many + "]"), "tools");
}

TEST(Tools, OfTheHistoryHaveOneFormInAllApis) {
  const Json expected = Json::parse(R"([{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "Look.", "reasoning_content": "Hm", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}]},
      {"role": "tool", "tool_call_id": "c1", "name": "weather", "content": "cold\nwet"},
      {"role": "user", "content": "So?"}])");
  EXPECT_EQ(parse(Api::kMessage, R"({"max_tokens": 5, "messages": [{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm", "signature": ""}, {"type": "text", "text": "Look."},
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "cold"},
        {"type": "text", "text": "wet"}]}, {"type": "text", "text": "So?"}]}]})")
                .chat.messages,
            expected);
  EXPECT_EQ(parse(Api::kResponse, R"({"input": [{"role": "user", "content": "Hi"},
      {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]},
      {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Look."}]},
      {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{\"city\": \"Oslo\"}"},
      {"type": "function_call_output", "call_id": "c1", "output": "cold\nwet"},
      {"role": "user", "content": "So?"}]})")
                .chat.messages,
            expected);
  const Json chat = parse_chat(R"({"messages": [{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "Look.", "reasoning": "Hm", "tool_calls": [{"id": "c1", "index": 0, "type": "function",
        "function": {"name": "weather", "arguments": "{\"city\": \"Oslo\"}"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": "cold\nwet"}, {"role": "user", "content": "So?"}]})")
                        .chat.messages;
  EXPECT_EQ(chat[1]["tool_calls"], expected[1]["tool_calls"]);
  EXPECT_EQ(chat[1]["reasoning_content"], "Hm");
  const Json old = parse_chat(R"({"messages": [{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}},
      {"role": "function", "name": "f", "content": "5"}]})")
                       .chat.messages;
  EXPECT_EQ(old[1], Json::parse(R"({"role": "assistant", "content": "", "tool_calls": [
      {"type": "function", "function": {"name": "f", "arguments": {}}}]})"));
  EXPECT_EQ(old[2]["role"], "tool");
}

// Whatever a model wrote comes back with every later request; refusing it would end the conversation.
TEST(Tools, OfTheHistoryKeepArgumentsThatAreNoObjectAsWritten) {
  for (const std::string written : {"{\"q\": \"cut", "{\"q\": \"line\nend\"}", "{q: 1}", "{\"q\": 1,}", "[1, 2]",
                                    "\"text\"", "12", "null", "not JSON", "{\"a\": 1} {\"b\": 2}"}) {
    const std::string quoted = Json(written).dump();
    const std::string call = R"({"type": "function", "function": {"name": "f", "arguments": )" + quoted + "}}";
    const std::string messages = R"({"messages": [{"role": "assistant", "tool_calls": [)" + call + "]}]}";
    for (const Api api : {Api::kChat, Api::kOllamaChat}) {
      EXPECT_EQ(parse(api, messages).chat.messages[0]["tool_calls"][0]["function"]["arguments"], written);
    }
    EXPECT_EQ(parse_chat(R"({"messages": [{"role": "assistant", "function_call": {"name": "f", "arguments": )" +
                         quoted + "}}]}")
                  .chat.messages[0]["tool_calls"][0]["function"]["arguments"],
              written);
    EXPECT_EQ(
        parse(Api::kResponse,
              R"({"input": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": )" + quoted + "}]}")
            .chat.messages[0]["tool_calls"][0]["function"]["arguments"],
        written);
    for (const std::string& input : {quoted, R"({"INVALID_JSON": )" + quoted + "}"}) {  // the latter as Quire answers
      EXPECT_EQ(parse(Api::kMessage, R"({"max_tokens": 1, "messages": [{"role": "assistant", "content": [
                    {"type": "tool_use", "id": "1", "name": "f", "input": )" +
                                         input + "}]}]}")
                    .chat.messages[0]["tool_calls"][0]["function"]["arguments"],
                written);
    }
  }
  const auto arguments = [](const std::string& json) {
    return parse_chat(R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": )" +
                      json + "}}]}]}")
        .chat.messages[0]["tool_calls"][0]["function"]["arguments"];
  };
  EXPECT_EQ(arguments("[1, 2]"), "[1,2]");
  EXPECT_EQ(arguments("5"), "5");
  for (const char* none : {"\"\"", "\" \\n\"", "null", "{}"}) EXPECT_EQ(arguments(none), Json::object()) << none;
  EXPECT_EQ(arguments(R"("{\"a\": \"\\ud83d\"}")"), Json::parse("{\"a\": \"\uFFFD\"}")) << "a lone surrogate inside";
  EXPECT_TRUE(arguments(Json(std::string(100, '[')).dump()).is_string());
}

TEST(Tools, HaveResultsOfAnyJson) {
  for (
      const auto& [content, text] : std::vector<std::pair<std::string, std::string>>{
          {"null", ""},
          {"4.5", "4.5"},
          {"true", "true"},
          {R"({"temp": 4})", R"({"temp":4})"},
          {R"([1, {"a": null}])", R"([1,{"a":null}])"},
          {R"([{"type": "dir", "name": "x"}, {"type": "file", "name": "y"}])",
           R"([{"type":"dir","name":"x"},{"type":"file","name":"y"}])"},
          {R"(["a", {"type": "text", "text": "b"}])", "a\nb"},
          {R"({"type": "text", "text": "b"})", "b"},
          {R"([{"type": "text", "text": "a"}, {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "c"}]}])",
           "a\nt\ns\nc"},
          {R"([{"type": "document", "source": {"type": "text", "data": "d"}}])", "d"},
          {R"([{"type": "document", "name": "x"}])", R"([{"type":"document","name":"x"}])"},
          {"[]", ""}}) {
    const std::string chat = R"({"messages": [{"role": "tool", "tool_call_id": "1", "content": )" + content + "}]}";
    EXPECT_EQ(parse_chat(chat).chat.messages[0]["content"], text) << content;
    EXPECT_EQ(parse(Api::kOllamaChat, chat).chat.messages[0]["content"], text) << content;
    EXPECT_EQ(parse_chat(R"({"messages": [{"role": "function", "name": "f", "content": )" + content + "}]}")
                  .chat.messages[0]["content"],
              text);
    EXPECT_EQ(parse(Api::kResponse,
                    R"({"input": [{"type": "function_call_output", "call_id": "1", "output": )" + content + "}]}")
                  .chat.messages[0]["content"],
              text);
    EXPECT_EQ(parse(Api::kMessage, R"({"max_tokens": 1, "messages": [{"role": "user", "content": [
                  {"type": "tool_result", "tool_use_id": "1", "content": )" +
                                       content + "}]}]}")
                  .chat.messages[0]["content"],
              text);
  }
}

TEST(Tools, GoWithRefusalsAndThoughtsOfTheHistory) {
  const auto answer = [](const std::string& members) {
    return parse_chat(R"({"messages": [{"role": "assistant", )" + members + "}]}").chat.messages[0];
  };
  EXPECT_EQ(answer(R"("content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "No."}])")["content"],
            "a\nNo.");
  EXPECT_EQ(answer(R"("content": null, "refusal": "No.")")["content"], "No.");
  EXPECT_EQ(answer(R"("content": "a", "refusal": null)")["content"], "a");
  for (const char* thought :
       {R"({"type": "thinking", "thinking": "Hm", "signature": ""})", R"({"type": "reasoning", "text": "Hm"})",
        R"({"type": "thinking", "thinking": [{"type": "text", "text": "H"}, {"type": "text", "text": "m"}]})"}) {
    const Json made = answer(R"("content": [)" + std::string(thought) +
                             R"(, {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "a"}])");
    EXPECT_EQ(made["content"], "a") << thought;
    EXPECT_EQ(made["reasoning_content"], "Hm") << thought;
  }
  const Json item =
      parse(Api::kResponse, R"({"input": [{"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}]})")
          .chat.messages[0];
  EXPECT_EQ(item["content"], "No.");
}

TEST(Tools, SetTheVariablesOfThinkingTemplates) {
  EXPECT_EQ(parse_chat(chat_with(R"("enable_thinking": false)")).chat.kwargs,
            Json::parse(R"({"enable_thinking": false, "thinking": false})"));
  EXPECT_EQ(parse_chat(chat_with(R"("reasoning_effort": "none")")).chat.kwargs["enable_thinking"], false);
}

// Servers of a model that thinks and calls as Qwen3 does.
constexpr const char* kAnswer =
    "<think>\nHm.\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
    "\"Oslo\"}}\n</tool_call>\n"
    "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>";

struct ToolServer {
  explicit ToolServer(std::string answer = kAnswer) : running(qwen3_options()), client(running.port()) {
    running.model.answer = std::move(answer);
  }
  std::vector<Json> events(std::string_view path, const std::string& body) { return client.post(path, body).events(); }

  RunningServer running;
  HttpClient client;
};

TEST(ToolAnswers, OfWholeChats) {
  ToolServer server;
  const Json json = server.client.post(kChatPath, chat_body(tools())).json();
  const Json& message = json["choices"][0]["message"];
  EXPECT_EQ(json["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(message["content"], "I look.");
  EXPECT_EQ(message["reasoning_content"], "Hm.");
  EXPECT_EQ(message["reasoning"], "Hm.");
  ASSERT_EQ(message["tool_calls"].size(), 2u);
  EXPECT_EQ(message["tool_calls"][1]["type"], "function");
  EXPECT_EQ(message["tool_calls"][1]["function"],
            Json::parse(R"({"name": "weather", "arguments": "{\"city\": \"Rome\"}"})"));
  EXPECT_NE(message["tool_calls"][0]["id"], message["tool_calls"][1]["id"]);
  EXPECT_GT(json["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
  EXPECT_TRUE(server.running.model.last_request().frame_tokens);
}

// Whether the last request's answer may be this text; with `complete`, whether it may end there.
bool may_answer(const ToolServer& server, std::string_view text, bool complete = true) {
  const Constraint constraint = server.running.model.last_request().constraint;
  if (!constraint) return true;
  grammar::Matcher matcher(grammar::Vocabulary::of_bytes(), constraint);
  return matcher.advance_bytes(text) && (!complete || matcher.accepting());
}

constexpr const char* kCall = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>";
constexpr const char* kWrongCall = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": 5}}\n</tool_call>";

TEST(ForcedCalls, AreAConstraintInAllApis) {
  ToolServer server;
  const std::string schema = Json::parse(kTool)["function"]["parameters"].dump();
  const std::vector<std::pair<std::string, std::string>> requests = {
      {std::string(kChatPath), chat_body(tools(R"(, "tool_choice": "required")"))},
      {std::string(kChatPath),
       chat_body(tools(R"(, "tool_choice": {"type": "function", "function": {"name": "weather"}})"))},
      {std::string(kChatPath), chat_body(R"("functions": [{"name": "weather", "parameters": )" + schema +
                                         R"(}], "function_call": {"name": "weather"})")},
      {"/v1/responses", R"({"input": "Hi", "tool_choice": "required", "tools": [{"type": "function", "name": "weather",
          "parameters": )" + schema +
                            "}]}"},
      {"/v1/messages",
       R"({"max_tokens": 1000, "messages": [{"role": "user", "content": "Hi"}], "tool_choice": {"type": "any"},
          "tools": [{"name": "weather", "input_schema": )" +
           schema + "}]}"},
      {"/v1/messages", R"({"max_tokens": 1000, "messages": [{"role": "user", "content": "Hi"}], "tool_choice":
          {"type": "tool", "name": "weather"}, "tools": [{"name": "weather", "input_schema": )" +
                           schema + "}]}"}};
  for (const auto& [path, body] : requests) {
    EXPECT_EQ(server.client.post(path, body).status, 200) << body;
    EXPECT_TRUE(may_answer(server, kCall)) << body;
    EXPECT_TRUE(may_answer(server, "<think>I look.</think>\n\n" + std::string(kCall))) << body;
    EXPECT_FALSE(may_answer(server, "Hello", false)) << body;
    EXPECT_FALSE(may_answer(server, kWrongCall, false)) << body;
  }
}

TEST(ForcedCalls, AreOfTheNamedTool) {
  ToolServer server;
  const std::string two = R"("tools": [{"type": "function", "function": {"name": "a"}},
      {"type": "function", "function": {"name": "b"}}], "tool_choice": )";
  const auto call = [](const char* name) {
    return "<tool_call>\n{\"name\": \"" + std::string(name) + "\", \"arguments\": {}}\n</tool_call>";
  };
  server.client.post(kChatPath, chat_body(two + R"({"type": "function", "function": {"name": "b"}})"));
  EXPECT_TRUE(may_answer(server, call("b")));
  EXPECT_FALSE(may_answer(server, call("a"), false));
  server.client.post(kChatPath, chat_body(two + R"("required", "parallel_tool_calls": false)"));
  EXPECT_TRUE(may_answer(server, call("a")));
  EXPECT_FALSE(may_answer(server, call("a") + '\n' + call("b"), false));
  server.client.post(kChatPath, chat_body(two + R"("required")"));
  EXPECT_TRUE(may_answer(server, call("a") + '\n' + call("b")));
}

// false is OpenAI's default, which many clients write out.
TEST(ForcedCalls, FollowTheSchemaWhetherStrictIsFalseOrAbsent) {
  ToolServer server;
  const std::string function = R"({"name": "weather", "strict": false, "parameters":
      {"type": "object", "properties": {"city": {"type": "string"}}}})";
  Json flat = Json::parse(function);
  flat["type"] = "function";
  for (const auto& [path, body] : std::vector<std::pair<std::string, std::string>>{
           {std::string(kChatPath), chat_body(R"("tools": [{"type": "function", "function": )" + function +
                                              R"(}], "tool_choice": "required")")},
           {"/v1/responses", R"({"input": "Hi", "tool_choice": "required", "tools": [)" + flat.dump() + "]}"}}) {
    EXPECT_EQ(server.client.post(path, body).status, 200);
    EXPECT_TRUE(may_answer(server, kCall)) << path;
    EXPECT_FALSE(may_answer(server, kWrongCall, false)) << path;
    EXPECT_FALSE(may_answer(server, "Hello", false)) << path;
  }
}

// `strict`: a member of the second tool's function, with a comma.
std::string two_tools(const std::string& strict, const std::string& choice) {
  return chat_body(R"("tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
      "properties": {"city": {"type": "string"}}}}}, {"type": "function", "function": {"name": "f", )" +
                   strict + R"("parameters": {"type": "object", "properties": {"city": {"$ref": "#/nowhere"}}}}}],
      "tool_choice": )" +
                   choice);
}

TEST(ForcedCalls, TakeAnyObjectWhereASchemaCannotBeFollowed) {
  ToolServer server;
  const std::string call = R"(<tool_call>
{"name": "f", "arguments": {"city": 5}}
</tool_call>)";
  for (const char* strict : {"", R"("strict": false, )", R"("strict": null, )"}) {
    for (const char* choice : {"\"required\"", R"({"type": "function", "function": {"name": "f"}})"}) {
      EXPECT_EQ(server.client.post(kChatPath, two_tools(strict, choice)).status, 200) << strict << choice;
      EXPECT_TRUE(may_answer(server, call)) << strict << choice;
      EXPECT_FALSE(may_answer(server, kWrongCall, false)) << "the other tool's schema still counts";
    }
  }
  EXPECT_EQ(server.client.post(kChatPath, two_tools(R"("strict": true, )", "\"required\"")).status, 400);
  EXPECT_EQ(server.client.post(kChatPath, two_tools(R"("strict": true, )", "\"auto\"")).status, 400);
}

TEST(StrictTools, ConstrainCallsOnceTheyBegin) {
  ToolServer server;
  std::string strict = tools();
  strict.replace(strict.find("\"name\""), 0, "\"strict\": true, ");
  server.client.post(kChatPath, chat_body(strict));
  EXPECT_TRUE(may_answer(server, "It rains."));
  EXPECT_TRUE(may_answer(server, "I look.\n" + std::string(kCall)));
  EXPECT_FALSE(may_answer(server, kWrongCall, false));
  server.client.post(kChatPath, chat_body(tools()));
  EXPECT_TRUE(may_answer(server, kWrongCall)) << "without strict nothing is constrained";
}

TEST(StrictTools, GoWithAResponseFormat) {
  ToolServer server;
  server.client.post(kChatPath, chat_body(tools(R"(, "response_format": {"type": "json_object"})")));
  EXPECT_TRUE(may_answer(server, R"({"a": 5})"));
  EXPECT_TRUE(may_answer(server, kCall));
  EXPECT_TRUE(may_answer(server, R"(<think>Hm.</think>{"a": 5})"));
  EXPECT_FALSE(may_answer(server, "Hello", false));
}

TEST(ForcedCalls, WhoseSchemaIsRefusedGetA400ThatNamesIt) {
  ToolServer server;
  const HttpAnswer refused = server.client.post(
      kChatPath, chat_body(R"("tools": [{"type": "function", "function": {"name": "f", "strict": true,
      "parameters": {"properties": {"u": {"$ref": "#/nowhere"}}}}}], "tool_choice": "required")"));
  EXPECT_EQ(refused.status, 400);
  const Json error = refused.json()["error"];
  EXPECT_EQ(error["param"], "tools");
  EXPECT_EQ(error["code"], "structured_output_refused");
  EXPECT_EQ(error["message"].get<std::string>().find("tools[0].function.parameters: "), 0u) << error;
}

TEST(ForcedCalls, NeedAParser) {
  ServerOptions options;
  options.tool_call_parser = "none";
  RunningServer running(options);
  HttpClient client(running.port());
  EXPECT_EQ(client.post(kChatPath, chat_body(tools(R"(, "tool_choice": "required")"))).status, 400);
}

TEST(ReasoningBudgets, AreHandedToTheEngine) {
  ToolServer server;
  for (const auto& [path, body] : std::vector<std::pair<std::string, std::string>>{
           {std::string(kChatPath), chat_body(R"("max_reasoning_tokens": 7)")},
           {std::string(kChatPath), chat_body(R"("thinking_token_budget": 7)")},
           {"/v1/messages", R"({"max_tokens": 1000, "messages": [{"role": "user", "content": "Hi"}],
               "thinking": {"type": "enabled", "budget_tokens": 7}})"}}) {
    EXPECT_EQ(server.client.post(path, body).status, 200) << body;
    const auto budget = server.running.model.last_request().thought_budget;
    ASSERT_TRUE(budget) << body;
    EXPECT_EQ(budget->tokens, 7);
    EXPECT_EQ(budget->open, "<think>");
    EXPECT_EQ(budget->close, "</think>");
    EXPECT_EQ(budget->closing.size(), 8u) << "the scripted model's tokens are characters";
    EXPECT_FALSE(budget->inside);
  }
  server.client.post(kChatPath, chat_body());
  EXPECT_FALSE(server.running.model.last_request().thought_budget);
}

// Five turns with two tools, as an agent drives them: calls are carried out, and results go back into the chat.
TEST(ToolAnswers, LeadAnAgentThroughFiveTurns) {
  const auto call = [](const char* name, const char* arguments) {
    return fmt::format("<tool_call>\n{{\"name\": \"{}\", \"arguments\": {}}}\n</tool_call>", name, arguments);
  };
  const std::vector<std::string> script = {
      "<think>I need the weather.</think>\n\n" + call("weather", R"({"city": "Oslo"})"),
      "Now Rome. " + call("weather", R"({"city": "Rome"})"),
      call("note", R"({"text": "Oslo \"4\""})") + "\n" + call("note", R"({"text": "Rome 20"})"),
      "<think>One more.</think>" + call("weather", R"({"city": "Bergen"})"), "It is warmest in Rome."};
  ToolServer server;
  Json messages = Json::parse(R"([{"role": "user", "content": "Where is it warmest?"}])");
  std::vector<std::string> done;
  size_t turn = 0;
  for (; turn < script.size(); ++turn) {
    server.running.model.answer = script[turn];
    const Json body = {
        {"messages", messages},
        {"tools", Json::array({Json::parse(kTool), Json::parse(R"({"type": "function", "function": {"name": "note",
                           "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}}})")})}};
    const Json choice = server.client.post(kChatPath, body.dump()).json()["choices"][0];
    messages.push_back(choice["message"]);
    if (choice["finish_reason"] == "stop") break;
    ASSERT_EQ(choice["finish_reason"], "tool_calls");
    for (const Json& made : choice["message"]["tool_calls"]) {
      const Json arguments = Json::parse(made["function"]["arguments"].get<std::string>());
      done.push_back(made["function"]["name"].get<std::string>() + " " + arguments.begin().value().get<std::string>());
      messages.push_back({{"role", "tool"}, {"tool_call_id", made["id"]}, {"content", "done: " + done.back()}});
    }
  }
  EXPECT_EQ(turn, 4u);
  EXPECT_EQ(done, (std::vector<std::string>{"weather Oslo", "weather Rome", "note Oslo \"4\"", "note Rome 20",
                                            "weather Bergen"}));
  EXPECT_EQ(messages.back()["content"], "It is warmest in Rome.");
  const Request last = server.running.model.last_request();
  const std::string prompt(last.prompt.begin(), last.prompt.end());  // its tokens are bytes
  for (const std::string& result : done) EXPECT_NE(prompt.find("done: " + result), std::string::npos) << result;
}

TEST(ToolAnswers, WithoutToolsKeepCallsAsText) {
  ToolServer server;
  const Json choice = server.client.post(kChatPath, chat_body()).json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_TRUE(choice["message"]["content"].get<std::string>().starts_with("I look.\n<tool_call>"));
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
}

TEST(ToolAnswers, LeaveOutWhatTheRequestDoesNotWant) {
  ToolServer server;
  const Json message =
      server.client.post(kChatPath, chat_body(tools(R"(, "parallel_tool_calls": false, "include_reasoning": false)")))
          .json()["choices"][0]["message"];
  EXPECT_EQ(message["tool_calls"].size(), 1u);
  EXPECT_FALSE(message.contains("reasoning_content"));
}

TEST(ToolAnswers, OfFunctionsHaveOneCall) {
  ToolServer server;
  const Json choice =
      server.client.post(kChatPath, chat_body(R"("functions": [{"name": "weather"}])")).json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "function_call");
  EXPECT_EQ(choice["message"]["function_call"]["name"], "weather");
}

TEST(ToolAnswers, OfAlmostJsonHaveValidArguments) {
  ToolServer server(
      "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"a\nb\", \"days\": [1, True,],}}</tool_call>");
  const Json expected = {{"city", "a\nb"}, {"days", {1, true}}};
  const Json chat = server.client.post(kChatPath, chat_body(tools())).json()["choices"][0];
  EXPECT_EQ(Json::parse(chat["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>()), expected);
  std::string streamed;
  for (const Json& event : server.events(kChatPath, chat_body(tools(R"(, "stream": true)")))) {
    for (const Json& call : event["choices"][0]["delta"].value("tool_calls", Json::array())) {
      streamed += call["function"]["arguments"].get<std::string>();
    }
  }
  EXPECT_EQ(Json::parse(streamed), expected);
  const Json message = server.client
                           .post("/v1/messages", R"({"max_tokens": 1000, "messages": [{"role": "user",
      "content": "Hi"}], "tools": [{"name": "weather"}]})")
                           .json();
  EXPECT_EQ(message["content"][0]["input"], expected);
  const Json response = server.client
                            .post("/v1/responses", R"({"input": "Hi", "tools": [{"type": "function",
      "name": "weather"}]})")
                            .json();
  EXPECT_EQ(Json::parse(response["output"][0]["arguments"].get<std::string>()), expected);
  const Json ollama = server.client
                          .post("/api/chat", R"({"stream": false, "messages": [{"role": "user", "content": "Hi"}],
      "tools": [{"type": "function", "function": {"name": "weather"}}]})")
                          .json();
  EXPECT_EQ(ollama["message"]["tool_calls"][0]["function"]["arguments"], expected);
}

TEST(ToolAnswers, WhoseArgumentsAreNoObjectAreText) {
  const std::string answer = "<tool_call>{\"name\": \"weather\", \"arguments\": [\"Oslo\"]}</tool_call>";
  ToolServer server(answer);
  const Json choice = server.client.post(kChatPath, chat_body(tools())).json()["choices"][0];
  EXPECT_EQ(choice["message"]["content"], answer);
  EXPECT_EQ(choice["finish_reason"], "stop");
}

TEST(ToolAnswers, ThatEndInsideACallAreClosed) {
  ToolServer server("<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Os");
  const Json choice = server.client.post(kChatPath, chat_body(tools())).json()["choices"][0];
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], R"({"city": "Os"})");
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
}

TEST(ToolAnswers, ThatAreCutOffEndWithLength) {
  ToolServer server;
  const std::string answer = kAnswer;
  const size_t cut = answer.find("Oslo") + 2;
  const Json choice =
      server.client.post(kChatPath, chat_body(tools(fmt::format(R"(, "max_tokens": {})", cut)))).json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"city\": \"Os");
}

TEST(ToolAnswers, OfStreamedChats) {
  ToolServer server;
  std::string content, reasoning, finish;
  std::vector<std::string> names, arguments;
  for (const Json& event : server.events(kChatPath, chat_body(tools(R"(, "stream": true, "n": 1)")))) {
    const Json& choice = event["choices"][0];
    const Json& delta = choice["delta"];
    content += delta.value("content", "");
    reasoning += delta.value("reasoning_content", "");
    if (!choice["finish_reason"].is_null()) finish = choice["finish_reason"];
    for (const Json& call : delta.value("tool_calls", Json::array())) {
      if (call.contains("id")) {
        EXPECT_EQ(call["index"], names.size());
        names.push_back(call["function"]["name"]);
        arguments.emplace_back();
      }
      arguments.at(call["index"]) += call["function"]["arguments"].get<std::string>();
    }
  }
  EXPECT_EQ(content, "I look.");
  EXPECT_EQ(reasoning, "Hm.");
  EXPECT_EQ(finish, "tool_calls");
  EXPECT_EQ(names, (std::vector<std::string>{"weather", "weather"}));
  EXPECT_EQ(arguments, (std::vector<std::string>{R"({"city": "Oslo"})", R"({"city": "Rome"})"}));
}

TEST(ToolAnswers, OfStreamedFunctions) {
  ToolServer server;
  std::string name, arguments, finish;
  for (const Json& event :
       server.events(kChatPath, chat_body(R"("functions": [{"name": "weather"}], "stream": true)"))) {
    const Json call = event["choices"][0]["delta"].value("function_call", Json::object());
    name += call.value("name", "");
    arguments += call.value("arguments", "");
    if (!event["choices"][0]["finish_reason"].is_null()) finish = event["choices"][0]["finish_reason"];
  }
  EXPECT_EQ(name, "weather");
  EXPECT_EQ(arguments, R"({"city": "Oslo"})");
  EXPECT_EQ(finish, "function_call");
}

constexpr const char* kMessageBody =
    R"({"model": "scripted", "max_tokens": 1000, "messages": [{"role": "user", "content": "Hi"}],
    "tools": [{"name": "weather", "input_schema": {"type": "object"}}], "stream": )";

TEST(ToolAnswers, OfWholeMessages) {
  ToolServer server;
  const Json json = server.client.post("/v1/messages", kMessageBody + std::string("false}")).json();
  EXPECT_EQ(json["stop_reason"], "tool_use");
  ASSERT_EQ(json["content"].size(), 4u);
  EXPECT_EQ(json["content"][0], Json::parse(R"({"type": "thinking", "thinking": "Hm.", "signature": ""})"));
  EXPECT_EQ(json["content"][1], Json::parse(R"({"type": "text", "text": "I look."})"));
  EXPECT_EQ(json["content"][3]["type"], "tool_use");
  EXPECT_EQ(json["content"][3]["name"], "weather");
  EXPECT_EQ(json["content"][3]["input"], Json::parse(R"({"city": "Rome"})"));
  EXPECT_TRUE(json["content"][3]["id"].get<std::string>().starts_with("toolu_"));
}

TEST(ToolAnswers, OfStreamedMessages) {
  ToolServer server;
  std::vector<std::string> blocks, texts;
  int open = -1;
  std::string stop_reason;
  for (const Json& event : server.events("/v1/messages", kMessageBody + std::string("true}"))) {
    const std::string type = event["type"];
    if (type == "content_block_start") {
      EXPECT_EQ(open, -1);
      open = event["index"];
      EXPECT_EQ(open, static_cast<int>(blocks.size()));
      blocks.push_back(event["content_block"]["type"]);
      texts.emplace_back();
    } else if (type == "content_block_delta") {
      EXPECT_EQ(event["index"], open);
      for (const char* member : {"text", "thinking", "partial_json"}) texts.back() += event["delta"].value(member, "");
    } else if (type == "content_block_stop") {
      EXPECT_EQ(event["index"], open);
      open = -1;
    } else if (type == "message_delta") {
      stop_reason = event["delta"]["stop_reason"];
    }
  }
  EXPECT_EQ(open, -1);
  EXPECT_EQ(stop_reason, "tool_use");
  EXPECT_EQ(blocks, (std::vector<std::string>{"thinking", "text", "tool_use", "tool_use"}));
  EXPECT_EQ(texts, (std::vector<std::string>{"Hm.", "I look.", R"({"city": "Oslo"})", R"({"city": "Rome"})"}));
}

TEST(ToolAnswers, OfMessagesThatAreCutOffWrapTheArguments) {
  const std::string answer = R"(<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>)";
  ToolServer server(answer);
  Json body = Json::parse(kMessageBody + std::string("false}"));
  body["max_tokens"] = answer.find("lo\"");
  const Json json = server.client.post("/v1/messages", body.dump()).json();
  EXPECT_EQ(json["content"][0]["input"], Json::parse(R"({"INVALID_JSON": "{\"city\": \"Os"})"));
}

constexpr const char* kResponseBody =
    R"({"input": "Hi", "tools": [{"type": "function", "name": "weather", "parameters": {"type": "object"}}], "stream": )";

TEST(ToolAnswers, OfWholeResponses) {
  ToolServer server;
  const Json json = server.client.post("/v1/responses", kResponseBody + std::string("false}")).json();
  const Json& output = json["output"];
  ASSERT_EQ(output.size(), 4u);
  EXPECT_EQ(output[0]["type"], "reasoning");
  EXPECT_EQ(output[0]["content"], Json::parse(R"([{"type": "reasoning_text", "text": "Hm."}])"));
  EXPECT_EQ(output[1]["content"][0]["text"], "I look.");
  EXPECT_EQ(output[3]["type"], "function_call");
  EXPECT_EQ(output[3]["name"], "weather");
  EXPECT_EQ(output[3]["arguments"], R"({"city": "Rome"})");
  EXPECT_TRUE(output[3]["call_id"].get<std::string>().starts_with("call_"));
  EXPECT_EQ(json["tools"][0]["name"], "weather");
  EXPECT_EQ(json["tool_choice"], "auto");
  EXPECT_GT(json["usage"]["output_tokens_details"]["reasoning_tokens"], 0);
}

TEST(ToolAnswers, OfStreamedResponsesBuildTheirOutput) {
  ToolServer server;
  std::vector<Json> items;
  std::string deltas;
  int number = 0;
  Json last;
  for (const Json& event : server.events("/v1/responses", kResponseBody + std::string("true}"))) {
    EXPECT_EQ(event["sequence_number"], number++);
    const std::string type = event["type"];
    if (type == "response.output_item.added") {
      EXPECT_EQ(event["output_index"], items.size());
      EXPECT_EQ(event["item"]["status"], "in_progress");
      items.push_back(event["item"]);
      deltas.clear();
    } else if (type.ends_with(".delta")) {
      EXPECT_EQ(event["item_id"], items.back()["id"]);
      deltas += event["delta"].get<std::string>();
    } else if (type == "response.output_text.done" || type == "response.reasoning_text.done") {
      EXPECT_EQ(event["text"], deltas);
    } else if (type == "response.function_call_arguments.done") {
      EXPECT_EQ(event["arguments"], deltas);
    } else if (type == "response.output_item.done") {
      EXPECT_EQ(event["item"]["id"], items.back()["id"]);
      items.back() = event["item"];
    }
    last = event;
  }
  EXPECT_EQ(last["type"], "response.completed");
  EXPECT_EQ(last["response"]["output"], Json(items));
  EXPECT_EQ(items.size(), 4u);
}

TEST(ToolAnswers, OfAPromptThatOpensTheThoughtBeginInside) {
  ToolServer server("So.</think>Yes.");
  const Json message = server.client.post(kChatPath, R"({"messages": [{"role": "user", "content": "<think>\n"}]})")
                           .json()["choices"][0]["message"];
  EXPECT_EQ(message["reasoning"], "So.");
  EXPECT_EQ(message["content"], "Yes.");
}

// The scripted template shows messages and no tools.
TEST(ToolAnswers, OfATemplateWithoutToolsFollowTheDescription) {
  RunningServer running({}, {}, spdlog::level::off, "{{ messages }}");
  HttpClient client(running.port());
  running.model.answer = R"({"name": "weather", "arguments": {}})";
  std::string prompt;
  running.model.on_encode = [&](std::string_view text) { prompt = text; };
  const Json message = client.post(kChatPath, chat_body(tools())).json()["choices"][0]["message"];
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "weather");
  EXPECT_NE(prompt.find("<tools>\n{\"name\":\"weather\""), std::string::npos) << prompt;
  EXPECT_TRUE(prompt.ends_with("Hi"));
}

}  // namespace
}  // namespace quire
