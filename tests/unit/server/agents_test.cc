// What coding agents and other clients send besides chats: tools and content of other providers, and empty lists.
#include <gtest/gtest.h>

#include <sstream>

#include "server/endpoints/responses.h"
#include "unit/server/parse_request.h"
#include "unit/server/running_server.h"

namespace quire {
namespace {

Json messages_of(Api api, const std::string& body) { return parse(api, body).chat.messages; }

std::vector<std::string> tool_names(const ApiRequest& request) {
  std::vector<std::string> names;
  for (const Json& tool : request.tools) names.push_back(tool["function"]["name"]);
  return names;
}

bool has_note(const ApiRequest& request, std::string_view part) {
  return std::ranges::any_of(request.notes, [&](const std::string& note) { return note.find(part) != note.npos; });
}

struct ToolForm {
  Api api;
  std::string function, of_other_kind;  // the beginning of a tool with a type
};
const ToolForm kForms[] = {
    {Api::kChat, R"({"type": "function", "function": {"name": "f"}})", R"({"type": )"},
    {Api::kResponse, R"({"type": "function", "name": "f"})", R"({"name": "o", "type": )"},
    {Api::kCountInput, R"({"type": "function", "name": "f"})", R"({"type": )"},
    {Api::kMessage, R"({"name": "f"})", R"({"name": "o", "type": )"},
    {Api::kCountTokens, R"({"name": "f"})", R"({"name": "o", "type": )"},
    {Api::kOllamaChat, R"({"type": "function", "function": {"name": "f"}})", R"({"type": )"},
};

std::string with_tools(const ToolForm& form, const std::string& tools, const std::string& more = "") {
  return body_with(form.api, "\"tools\": [" + tools + "]" + more);
}

TEST(ToolsOfOtherKinds, AreLeftOutNextToFunctions) {
  for (const ToolForm& form : kForms) {
    for (const char* kind :
         {"web_search", "web_search_preview", "namespace", "image_generation", "local_shell", "computer_use_preview",
          "file_search", "code_interpreter", "mcp", "shell", "tool_search", "web_search_20250305", "bash_20250124",
          "text_editor_20250728", "computer_20250124", "code_execution_20250825", "memory_20250818", "mcp_toolset"}) {
      const std::string other = form.of_other_kind + '"' + kind + "\", \"x\": [1]}";
      for (const std::string& tools : {form.function + "," + other, other + "," + form.function}) {
        const ApiRequest request = parse(form.api, with_tools(form, tools));
        EXPECT_EQ(tool_names(request), std::vector<std::string>{"f"}) << tools;
        EXPECT_TRUE(has_note(request, '"' + std::string(kind) + '"')) << tools;
      }
      const ApiRequest alone = parse(form.api, with_tools(form, other));
      EXPECT_TRUE(alone.tools.is_null()) << other;
    }
  }
  EXPECT_EQ(tool_names(parse_chat(
                chat_with(R"("tools": [{"type": "custom", "custom": {"name": "c"}}, {"function": {"name": "f"}}])"))),
            std::vector<std::string>{"f"});
}

// Codex CLI sends the tools of MCP servers so.
TEST(Namespaces, OfferTheirFunctionsUnderBothNames) {
  const std::string tools =
      R"("tools": [{"type": "function", "name": "find"}, {"type": "namespace", "name": "mcp__notes",
      "description": "d", "tools": [{"type": "function", "name": "find", "parameters": {"type": "object"}},
      {"type": "web_search"}]}, {"type": "namespace", "name": "mcp__files__", "tools": [{"type": "function", "name": "find"}]}])";
  EXPECT_EQ(tool_names(parse(Api::kResponse, body_with(Api::kResponse, tools))),
            (std::vector<std::string>{"find", "mcp__notes__find", "mcp__files__find"}));
  EXPECT_EQ(error_of(Api::kResponse, body_with(Api::kResponse, R"("tools": [{"type": "namespace", "name": "n", "tools":
                [{"type": "function", "name": "a b"}]}])"))
                .param,
            "tools[0].tools[0].name");
  EXPECT_EQ(
      messages_of(Api::kResponse, R"({"input": [{"type": "function_call", "call_id": "c", "namespace": "mcp__notes",
                "name": "find", "arguments": "{}"}]})")[0]["tool_calls"][0]["function"]["name"],
      "mcp__notes__find");

  ServerOptions options;
  options.tool_call_parser = "hermes";
  RunningServer running(options);
  running.model.answer = R"(<tool_call>{"name": "mcp__notes__find", "arguments": {"a": 1}}</tool_call>)";
  HttpClient client(running.port());
  const Json call = client.post("/v1/responses", body_with(Api::kResponse, tools)).json()["output"][0];
  EXPECT_EQ(call["name"], "find");
  EXPECT_EQ(call["namespace"], "mcp__notes");
  EXPECT_EQ(call["arguments"], R"({"a": 1})");
  running.model.answer = R"(<tool_call>{"name": "find", "arguments": {}}</tool_call>)";
  const Json plain = client.post("/v1/responses", body_with(Api::kResponse, tools)).json()["output"][0];
  EXPECT_EQ(plain["name"], "find");
  EXPECT_FALSE(plain.contains("namespace"));
}

TEST(ToolsOfOtherKinds, AreRefusedWhereAChoiceNeedsThem) {
  const std::string chat = R"("tools": [{"type": "function", "function": {"name": "f"}}, {"type": "web_search"},
      {"type": "custom", "name": "patch"}], "tool_choice": )";
  const std::string response = R"("tools": [{"type": "function", "name": "f"}, {"type": "web_search"},
      {"type": "custom", "name": "patch"}], "tool_choice": )";
  const std::string message = R"("tools": [{"name": "f"}, {"type": "web_search_20250305", "name": "web_search"}],
      "tool_choice": )";
  const auto param = [](Api api, const std::string& fields) { return error_of(api, body_with(api, fields)).param; };
  EXPECT_EQ(param(Api::kChat, chat + R"({"type": "function", "function": {"name": "patch"}})"), "tool_choice");
  EXPECT_EQ(param(Api::kChat, chat + R"({"type": "custom", "custom": {"name": "patch"}})"), "tool_choice.type");
  EXPECT_EQ(param(Api::kResponse, response + R"({"type": "web_search"})"), "tool_choice.type");
  EXPECT_EQ(param(Api::kResponse, response + R"({"type": "function", "name": "patch"})"), "tool_choice");
  EXPECT_EQ(param(Api::kMessage, message + R"({"type": "tool", "name": "web_search"})"), "tool_choice");
  for (const auto& [api, body] :
       {std::pair{Api::kChat, R"("tools": [{"type": "web_search"}], "tool_choice": "required")"},
        {Api::kResponse, R"("tools": [{"type": "mcp"}], "tool_choice": "required")"},
        {Api::kMessage, R"("tools": [{"type": "bash_20250124", "name": "bash"}],
                                                     "tool_choice": {"type": "any"})"}}) {
    const ApiError error = error_of(api, body_with(api, body));
    EXPECT_EQ(error.param, "tool_choice");
    EXPECT_NE(std::string(error.what()).find("cannot run"), std::string::npos) << error.what();
  }
  EXPECT_EQ(tool_names(parse(Api::kResponse, body_with(Api::kResponse, response + "\"required\""))),
            std::vector<std::string>{"f"});
}

TEST(ToolsOfOtherKinds, MayBeAmongTheAllowedOnes) {
  const std::string tools =
      R"("tools": [{"type": "function", "name": "f"}, {"type": "function", "name": "g"}, {"type": "mcp", "server_label": "m"},
          {"type": "custom", "name": "c"}], "tool_choice": {"type": "allowed_tools", "mode": )";
  const auto parsed = [&](const std::string& rest) {
    return parse(Api::kResponse, body_with(Api::kResponse, tools + rest));
  };
  EXPECT_EQ(tool_names(parsed(
                R"("auto", "tools": [{"type": "mcp", "server_label": "m"}, {"type": "function", "name": "g"}]})")),
            std::vector<std::string>{"g"});
  EXPECT_TRUE(parsed(R"("auto", "tools": [{"type": "image_generation"}]})").tools.is_null());
  EXPECT_EQ(error_of(Api::kResponse,
                     body_with(Api::kResponse, tools + R"("required", "tools": [{"type": "custom", "name": "c"}]})"))
                .param,
            "tool_choice");
}

Json input(const std::string& items) { return messages_of(Api::kResponse, "{\"input\": [" + items + "]}"); }
Json user_says(const char* text) { return {{"role", "user"}, {"content", text}}; }

TEST(ResponseItems, OfToolsThatTheClientRanAreShownAsCalls) {
  const auto call = [](const char* name, Json arguments) {
    return Json{
        {"role", "assistant"},
        {"content", ""},
        {"tool_calls",
         Json::array({{{"id", "c"}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}}})}};
  };
  const auto result = [](const char* name, const char* text) {
    return Json{{"role", "tool"}, {"tool_call_id", "c"}, {"name", name}, {"content", text}};
  };
  EXPECT_EQ(
      input(R"({"role": "user", "content": "Hi"},
      {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** Begin"},
      {"type": "custom_tool_call_output", "call_id": "c", "output": "Done"})"),
      Json::array({user_says("Hi"), call("apply_patch", {{"input", "*** Begin"}}), result("apply_patch", "Done")}));
  EXPECT_EQ(input(R"({"role": "user", "content": "Hi"},
      {"type": "local_shell_call", "call_id": "c", "status": "completed", "action": {"type": "exec", "command": ["ls"]}},
      {"type": "function_call_output", "call_id": "c", "output": "a.txt"})"),
            Json::array({user_says("Hi"), call("local_shell", {{"type", "exec"}, {"command", {"ls"}}}),
                         result("local_shell", "a.txt")}));
  EXPECT_EQ(input(R"({"role": "user", "content": "Hi"},
      {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
      {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "a.txt", "stderr": "", "outcome":
        {"type": "exit", "exit_code": 0}}]})"),
            Json::array({user_says("Hi"), call("shell", {{"commands", {"ls"}}}),
                         result("shell", "stdout: a.txt\nexit_code: 0")}));
  EXPECT_EQ(input(R"({"role": "user", "content": "Hi"},
      {"type": "mcp_call", "id": "c", "name": "find", "server_label": "m", "arguments": "{\"q\": 1}", "output": "two"})"),
            Json::array({user_says("Hi"), call("find", {{"q", 1}}), result("find", "two")}));
}

TEST(ResponseItems, OfOtherProvidersAreLeftOutAndNamed) {
  for (
      const char* item :
      {R"({"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search", "query": "x"}})",
       R"({"type": "image_generation_call", "id": "ig", "result": "AAAA"})",
       R"({"type": "file_search_call", "id": "fs", "queries": ["x"], "results": null})",
       R"({"type": "code_interpreter_call", "id": "ci", "code": "1", "container_id": "c"})",
       R"({"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "gAAA"})",
       R"({"type": "compaction", "encrypted_content": "gAAA"})",
       R"({"type": "compaction_summary", "encrypted_content": ""})",
       R"({"type": "ghost_snapshot", "ghost_commit": {}})",
       R"({"type": "mcp_list_tools", "server_label": "m", "tools": []})",
       R"({"type": "tool_search_output", "call_id": "c", "status": "completed", "execution": "client", "tools": []})"}) {
    const ApiRequest request =
        parse(Api::kResponse, R"({"input": [)" + std::string(item) + R"(, {"role": "user", "content": "Hi"}]})");
    EXPECT_EQ(request.chat.messages, Json::array({user_says("Hi")})) << item;
    EXPECT_TRUE(has_note(request, "left out")) << item;
  }
  EXPECT_EQ(error_of(Api::kResponse, R"({"input": [{"type": "item_reference", "id": "msg_1"}]})").param,
            "input[0].type");
  EXPECT_EQ(error_of(Api::kResponse, R"({"input": [{"type": "shell_note", "text": "a"}]})").param, "input[0].type");
  EXPECT_EQ(error_of(Api::kResponse, R"({"input": [{"type": "computer_call_output", "call_id": "c",
                "output": {"type": "computer_screenshot", "image_url": "data:"}}]})")
                .param,
            "input[0].output");
}

TEST(ProviderContent, OfMessagesIsShownAsText) {
  EXPECT_EQ(messages_of(Api::kMessage, R"({"max_tokens": 5, "messages": [
      {"role": "user", "content": [{"type": "document", "title": "Log", "source": {"type": "text", "media_type": "text/plain",
          "data": "all well"}}, {"type": "search_result", "source": "https://a.example", "title": "A", "content":
          [{"type": "text", "text": "found"}]}, {"type": "document", "source": {"type": "content", "content":
          [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}}, {"type": "text", "text": "Weather?"}]},
      {"role": "assistant", "content": [{"type": "text", "text": "I search."},
          {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "weather"}},
          {"type": "server_tool_use", "id": "s2", "name": "web_search", "input": {}},
          {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"type": "web_search_result",
            "title": "Oslo", "url": "https://o.example", "encrypted_content": "EqgfCio", "page_age": null}]},
          {"type": "web_search_tool_result", "tool_use_id": "s2", "content": []},
          {"type": "text", "text": "Rain."}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content":
          [{"type": "document", "source": {"type": "text", "data": "kept"}}, {"type": "tool_reference", "tool_name": "g"}]}]}]})"),
            Json::parse(R"([
      {"role": "user", "content": "Log\nall well\nA\nhttps://a.example\nfound\none\ntwo\nWeather?"},
      {"role": "assistant", "content": "I search.", "tool_calls": [{"id": "s1", "type": "function", "function":
          {"name": "web_search", "arguments": {"query": "weather"}}},
          {"id": "s2", "type": "function", "function": {"name": "web_search", "arguments": {}}}]},
      {"role": "tool", "tool_call_id": "s1", "name": "web_search", "content": "title: Oslo\nurl: https://o.example"},
      {"role": "tool", "tool_call_id": "s2", "name": "web_search", "content": ""},
      {"role": "assistant", "content": "Rain."},
      {"role": "tool", "tool_call_id": "t", "content": "kept\ng"}])"));
  for (const char* source : {R"({"type": "base64", "media_type": "application/pdf", "data": "JVBE"})",
                             R"({"type": "url", "url": "https://a.example"})", R"({"type": "file", "file_id": "f"})"}) {
    EXPECT_EQ(
        error_of(Api::kMessage, R"({"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "document",
                  "source": )" + std::string(source) +
                                    "}]}]}")
            .param,
        "messages[0].content[0].source.type");
  }
}

TEST(ProviderContent, OfCodeAndFetchedPagesIsShownAsText) {
  const auto result = [](const std::string& type, const std::string& content) {
    return messages_of(Api::kMessage, R"({"max_tokens": 5, "messages": [{"role": "user", "content": "a"},
        {"role": "assistant", "content": [{"type": ")" +
                                          type + R"(", "tool_use_id": "s", "content": )" + content + "}]}]}")
        .back()["content"];
  };
  EXPECT_EQ(
      result(
          "bash_code_execution_tool_result",
          R"({"type": "bash_code_execution_result", "stdout": "42\n", "stderr": "", "return_code": 0, "content": []})"),
      "stdout: 42\n\nreturn_code: 0");
  EXPECT_EQ(result("web_fetch_tool_result", R"({"type": "web_fetch_result", "url": "https://a.example", "content":
                {"type": "document", "source": {"type": "text", "data": "page"}, "title": "A"}})"),
            "url: https://a.example\nA\npage");
  EXPECT_EQ(
      result("web_search_tool_result", R"({"type": "web_search_tool_result_error", "error_code": "unavailable"})"),
      "error_code: unavailable");
  EXPECT_EQ(result("mcp_tool_result", R"([{"type": "text", "text": "five"}])"), "five");
}

TEST(BillingHeader, IsLeftOutOfTheSystemMessage) {
  const std::string line = "x-anthropic-billing-header: cc_version=2.1.15; cc_entrypoint=cli; cch=5f2e1;";
  const auto system = [](Api api, const Json& value) {
    Json body = Json::parse(body_with(api, ""));
    body["system"] = value;
    return parse(api, body.dump());
  };
  for (const Api api : {Api::kMessage, Api::kCountTokens}) {
    const Json ephemeral = {{"type", "ephemeral"}};
    const Json blocks = Json::array({{{"type", "text"}, {"text", line}},
                                     {{"type", "text"}, {"text", "You are an agent."}, {"cache_control", ephemeral}}});
    EXPECT_EQ(system(api, blocks).instructions, "You are an agent.");
    EXPECT_EQ(system(api, line + "\nYou are an agent.").instructions, "You are an agent.");
    EXPECT_EQ(system(api, line + "\r\n\r\nYou are an agent.").instructions, "You are an agent.");
    EXPECT_EQ(system(api, Json::array({{{"type", "text"}, {"text", line + "\nYou"}}})).instructions, "You");
    EXPECT_FALSE(system(api, line).instructions) << "no empty message";
    EXPECT_TRUE(has_note(system(api, line), "x-anthropic-billing-header"));
    const std::string quoted = "Remove the line " + line;
    EXPECT_EQ(system(api, quoted).instructions, quoted);
    EXPECT_TRUE(system(api, quoted).notes.empty());
  }
}

TEST(MessageRoles, MayBeSystemInTheMiddle) {
  EXPECT_EQ(messages_of(Api::kMessage, R"({"max_tokens": 5, "messages": [{"role": "user", "content": "a"},
      {"role": "system", "content": [{"type": "text", "text": "b"}]}, {"role": "user", "content": "c"}]})")[1],
            Json::parse(R"({"role": "system", "content": "b"})"));
}

// PHP writes an empty map as an empty list.
TEST(EmptyLists, StandForEmptyObjects) {
  EXPECT_TRUE(parse_chat(chat_with(R"("logit_bias": [])")).sampling.logit_bias.empty());
  for (const char* field :
       {"metadata", "stream_options", "chat_template_kwargs", "response_format", "structured_outputs"}) {
    EXPECT_NO_THROW(parse_chat(chat_with('"' + std::string(field) + "\": []"))) << field;
  }
  for (const char* field : {"thinking", "context_management", "output_config", "tool_choice", "metadata"}) {
    EXPECT_NO_THROW(parse(Api::kMessage, body_with(Api::kMessage, '"' + std::string(field) + "\": []"))) << field;
  }
  for (const char* field : {"reasoning", "text", "metadata", "stream_options"}) {
    EXPECT_NO_THROW(parse(Api::kResponse, body_with(Api::kResponse, '"' + std::string(field) + "\": []"))) << field;
  }
  EXPECT_NO_THROW(parse(Api::kOllamaChat, body_with(Api::kOllamaChat, R"("options": [])")));
  EXPECT_EQ(chat_error(chat_with(R"("logit_bias": [1])")).param, "logit_bias[0]");
  EXPECT_EQ(chat_error(chat_with(R"("temperature": [])")).param, "temperature");
}

TEST(EmptyLists, AreObjectsInSchemasAndArguments) {
  const Json chat = parse_chat(chat_with(R"("tools": [{"type": "function", "function": {"name": "f", "parameters": []}},
      {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": [], "required": []}}},
      {"type": "function", "function": {"name": "h", "parameters": {"type": "object", "properties": {"a": [],
        "b": {"type": "object", "properties": []}, "c": {"type": "array", "items": []}}}}}])"))
                        .tools;
  EXPECT_EQ(chat[0]["function"]["parameters"], Json::object());
  EXPECT_EQ(chat[1]["function"]["parameters"], Json::parse(R"({"type": "object", "properties": {}, "required": []})"));
  EXPECT_EQ(
      chat[2]["function"]["parameters"]["properties"],
      Json::parse(R"({"a": {}, "b": {"type": "object", "properties": {}}, "c": {"type": "array", "items": {}}})"));
  EXPECT_EQ(parse(Api::kMessage, body_with(Api::kMessage, R"("tools": [{"name": "f", "input_schema": []}])"))
                .tools[0]["function"]["parameters"],
            Json::object());
  EXPECT_EQ(parse(Api::kResponse, body_with(Api::kResponse, R"("tools": [{"type": "function", "name": "f", "parameters":
                {"properties": []}}])"))
                .tools[0]["function"]["parameters"]["properties"],
            Json::object());
  EXPECT_EQ(messages_of(Api::kMessage, R"({"max_tokens": 5, "messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": []}]}]})")
                [1]["tool_calls"][0]["function"]["arguments"],
            Json::object());
  EXPECT_EQ(
      input(R"({"type": "function_call", "call_id": "c", "name": "f", "arguments": "[]"})")[0]["tool_calls"][0]
                                                                                           ["function"]["arguments"],
      Json::object());
  EXPECT_EQ(parse_chat(chat_with(R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema":
                {"type": "object", "properties": []}}})"))
                .constraint_source->text.find("[]"),
            std::string::npos);
}

TEST(StreamOptions, OfResponsesHaveObfuscation) {
  for (const Api api : {Api::kResponse, Api::kChat, Api::kCompletion}) {
    EXPECT_TRUE(parse(api, body_with(api, R"("stream": true, "stream_options": {"include_obfuscation": false})"))
                    .without_effect.empty());
    EXPECT_EQ(
        parse(api, body_with(api, R"("stream": true, "stream_options": {"include_obfuscation": true})")).without_effect,
        std::vector<std::string>{"stream_options.include_obfuscation"});
  }
}

constexpr const char* kRepeating = R"({"input": "Hi", "instructions": "Be short", "metadata": {"run": "7"}, "user": "u",
    "max_output_tokens": 50, "safety_identifier": "s", "prompt_cache_key": "k", "service_tier": "flex", "truncation": "auto",
    "parallel_tool_calls": false, "reasoning": {"effort": "low", "summary": "auto"}, "text": {"verbosity": "low"},
    "max_tool_calls": 3, "tools": [{"type": "function", "name": "f", "strict": false, "parameters": {"type": "object"}},
    {"type": "web_search"}], "tool_choice": "none", "store": true, "stream": )";

TEST(Responses, RepeatWhatTheRequestSaid) {
  RunningServer running;
  HttpClient client(running.port());
  const Json sent = Json::parse(kRepeating + std::string("false}"));
  const Json whole = client.post("/v1/responses", kRepeating + std::string("false}")).json();
  for (const char* field :
       {"instructions", "metadata", "user", "max_output_tokens", "safety_identifier", "prompt_cache_key",
        "service_tier", "truncation", "parallel_tool_calls", "reasoning", "max_tool_calls", "tools", "tool_choice"}) {
    EXPECT_EQ(whole[field], sent[field]) << field;
  }
  EXPECT_EQ(whole["text"], Json::parse(R"({"format": {"type": "text"}, "verbosity": "low"})"));
  EXPECT_EQ(whole["store"], false) << "nothing is stored";
  const std::string stream = client.post("/v1/responses", kRepeating + std::string("true}")).body;
  for (const char* event : {"event: response.created\n", "event: response.completed\n"}) {
    const size_t at = stream.find(event);
    ASSERT_NE(at, stream.npos);
    const size_t data = stream.find("data: ", at) + 6;
    EXPECT_EQ(Json::parse(stream.substr(data, stream.find('\n', data) - data))["response"]["metadata"],
              sent["metadata"]);
  }
  const Json plain = client.post("/v1/responses", R"({"input": "Hi", "metadata": [], "reasoning": null})").json();
  EXPECT_EQ(plain["metadata"], Json::object());
  EXPECT_EQ(plain["reasoning"], Json::parse(R"({"effort": null, "summary": null})"));
  EXPECT_EQ(plain["tool_choice"], "auto");
  EXPECT_EQ(plain["tools"], Json::array());
  EXPECT_EQ(plain["parallel_tool_calls"], true);
}

TEST(Responses, CountInputTokens) {
  RunningServer running;
  HttpClient client(running.port());
  EXPECT_EQ(client.post("/v1/responses/input_tokens", R"({"input": "Hello"})").json(),
            Json::parse(R"({"object": "response.input_tokens", "input_tokens": 5})"));
  EXPECT_EQ(client.post("/v1/responses/input_tokens", kRepeating + std::string("true}")).json()["input_tokens"], 10);
  EXPECT_EQ(client.post("/v1/responses/input_tokens", R"({"input": [{"role": "user", "content": ""}], "tools": 5})")
                .error_param(),
            "tools");
  EXPECT_EQ(running.model.submitted(), 0u);
}

TEST(Models, HaveTheFieldsOfAllClients) {
  ServerOptions options;
  options.model_names = {"a", "b"};
  RunningServer running(options);
  HttpClient client(running.port());
  const Json models = client.get("/v1/models").json();
  EXPECT_EQ(models["object"], "list");
  EXPECT_EQ(models["has_more"], false);
  EXPECT_EQ(models["first_id"], "a");
  EXPECT_EQ(models["last_id"], "b");
  ASSERT_EQ(models["data"].size(), 2u);
  EXPECT_EQ(models["data"][1]["type"], "model");
  EXPECT_EQ(models["data"][1]["display_name"], "b");
  const std::string created = models["data"][1]["created_at"];
  EXPECT_EQ(created.size(), std::string("2026-11-25T02:00:00Z").size());
  EXPECT_EQ(created.back(), 'Z');
  EXPECT_EQ(models["models"][0]["slug"], "a");
  EXPECT_EQ(models["models"][0]["context_window"], 100'000);
  EXPECT_EQ(client.get("/v1/models/b").json()["display_name"], "b");
}

TEST(ServedNames, MayEndInAStar) {
  for (const auto& [names, asked, served, first] :
       std::vector<std::tuple<std::vector<std::string>, std::string, bool, std::string>>{
           {{"*"}, "claude-sonnet-4-5", true, "scripted"},
           {{"*"}, "gpt-5-codex", true, "scripted"},
           {{"mine", "claude-*"}, "claude-haiku", true, "mine"},
           {{"mine", "claude-*"}, "mine", true, "mine"},
           {{"mine", "claude-*"}, "gpt-5", false, "mine"},
           {{"claude-*", "gpt-*"}, "scripted", true, "scripted"},
           {{"*"}, std::string(257, 'a'), false, "scripted"}}) {
    ServerOptions options;
    options.model_names = names;
    RunningServer running(options);
    HttpClient client(running.port());
    Json body = Json::parse(chat_body());
    body["model"] = asked;
    const HttpAnswer answer = client.post(kChatPath, body.dump());
    EXPECT_EQ(answer.status, served ? 200 : 404) << asked;
    if (served) {
      EXPECT_EQ(answer.json()["model"], asked);
    }
    EXPECT_EQ(client.post("/api/chat", body.dump()).status, served ? 200 : 404);
    EXPECT_EQ(client.get("/v1/models/" + asked).status, served ? 200 : 404);
    EXPECT_EQ(client.post(kChatPath, chat_body()).json()["model"], first) << "a request without a name";
    const Json listed = client.get("/v1/models").json();
    EXPECT_EQ(listed["data"].size(), 1u);
    EXPECT_EQ(listed["data"][0]["id"], first);
  }
}

TEST(TooLongPrompts, AreToldInTheWordsThatClientsKnow) {
  RunningServer running;
  running.model.change_info().max_model_len = 50;
  HttpClient client(running.port());
  const std::string text(60, 'a'), full(50, 'a');
  const Json message = {{"messages", Json::array({{{"role", "user"}, {"content", text}}})}, {"max_tokens", 5}};
  for (const bool stream : {false, true}) {
    for (auto [path, body, field] : std::vector<std::tuple<std::string, Json, std::string>>{
             {std::string(kChatPath), message, "messages"},
             {std::string(kCompletionPath), {{"prompt", text}}, "prompt"},
             {"/v1/responses", {{"input", text}}, "input"}}) {
      body["stream"] = stream;
      const HttpAnswer answer = client.post(path, body.dump());
      EXPECT_EQ(answer.status, 400);
      EXPECT_EQ(answer.json()["error"]["code"], "context_length_exceeded");
      EXPECT_EQ(answer.json()["error"]["param"], field);
      EXPECT_EQ(answer.json()["error"]["message"],
                "This model's maximum context length is 50 tokens. However, your " + field +
                    " resulted in 60 tokens. Please reduce the length of the " + field + ".");
    }
    Json body = message;
    body["stream"] = stream;
    const HttpAnswer answer = client.post("/v1/messages", body.dump());
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(
        answer.json()["error"],
        Json::parse(R"({"type": "invalid_request_error", "message": "prompt is too long: 60 tokens > 50 maximum"})"));
    body["messages"][0]["content"] = full;
    EXPECT_EQ(client.post("/v1/messages", body.dump()).json()["error"]["message"],
              "prompt is too long: 50 tokens > 49 maximum");
  }
  Json body = message;
  body["messages"][0]["content"] = std::string(40, 'a');
  body["max_tokens"] = 32'000;  // more than fits: the answer ends where the context does
  EXPECT_EQ(client.post("/v1/messages", body.dump()).status, 200);
}

}  // namespace
}  // namespace quire
