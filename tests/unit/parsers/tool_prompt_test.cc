// Tools and calls in prompts of templates that have a place for them, or none.
#include "parsers/tool_prompt.h"

#include <gtest/gtest.h>

#include "text/chat_template.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

ToolPlace place_in(const std::string& source) {
  const auto chat = ChatTemplate::parse(source, "test");
  return find_tool_form([&](ChatInput input) { return chat.render(input); }).place;
}

AnswerFormat format(std::string_view tools = "auto", std::string_view reasoning = "none") {
  return choose_format(
      "", [](std::string_view) { return false; }, tools, reasoning);
}

const Json kTools =
    Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])");

constexpr const char* kMessages = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";

TEST(ToolPrompt, FindsThePlaceOfTools) {
  EXPECT_EQ(place_in("{% for t in tools %}{{ t | tojson }}{% endfor %}" + std::string(kMessages)),
            ToolPlace::kVariable);
  EXPECT_EQ(place_in("{% for m in messages %}{{ m.tools }}{{ m.content }}{% endfor %}"), ToolPlace::kSystemMessage);
  EXPECT_EQ(place_in(kMessages), ToolPlace::kSystemText);
  EXPECT_EQ(
      place_in("{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + std::string(kMessages)),
      ToolPlace::kUserText);
  EXPECT_EQ(place_in("{% if tools %}{{ raise_exception('no') }}{% endif %}" + std::string(kMessages)),
            ToolPlace::kSystemText);
}

ChatInput placed(const char* messages, ToolPlace place, const Json& tools = kTools,
                 const AnswerFormat& answers = format()) {
  ChatInput chat{.messages = Json::parse(messages)};
  place_tools(chat, tools, {.place = place}, answers);
  return chat;
}

TEST(ToolPrompt, PutsToolsWhereTheTemplateTakesThem) {
  EXPECT_EQ(placed(R"([{"role": "user", "content": "Hi"}])", ToolPlace::kVariable).tools, kTools);
  const Json phi =
      placed(R"([{"role": "system", "content": "Be"}, {"role": "user", "content": "Hi"}])", ToolPlace::kSystemMessage)
          .messages;
  EXPECT_EQ(phi[0]["content"], "Be");
  EXPECT_EQ(phi[0]["tools"], R"([{"name":"f","parameters":{"type":"object"}}])");
}

TEST(ToolPrompt, DescribesToolsToTemplatesWithoutThem) {
  const Json system = placed(R"([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}])",
                             ToolPlace::kSystemText)
                          .messages;
  const std::string text = system[0]["content"];
  EXPECT_TRUE(text.starts_with("Be kind.\n\nYou can call"));
  EXPECT_NE(text.find("<tools>\n{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}\n</tools>"), std::string::npos);
  const Json added = placed(R"([{"role": "user", "content": "Hi"}])", ToolPlace::kSystemText).messages;
  EXPECT_EQ(added.size(), 2u);
  const Json user = placed(R"([{"role": "user", "content": "Hi"}])", ToolPlace::kUserText).messages;
  ASSERT_EQ(user.size(), 1u);
  EXPECT_TRUE(user[0]["content"].get<std::string>().ends_with("\n\nHi"));
}

TEST(ToolPrompt, WritesOutTheHistoryForTemplatesWithoutCalls) {
  const char* messages = R"([{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "Look.", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"a": 1}}}]},
      {"role": "tool", "tool_call_id": "1", "content": "x"}, {"role": "tool", "tool_call_id": "2", "content": "y"},
      {"role": "user", "content": "So?"}])";
  EXPECT_EQ(placed(messages, ToolPlace::kSystemText, nullptr).messages,
            Json::parse(R"([{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "Look.\n<tool_call>\n{\"name\":\"f\",\"arguments\":{\"a\":1}}\n</tool_call>"},
      {"role": "user", "content": "<tool_response>\nx\n</tool_response>\n<tool_response>\ny\n</tool_response>\n\nSo?"}])"));
  EXPECT_EQ(placed(messages, ToolPlace::kVariable, nullptr).messages, Json::parse(messages));
}

TEST(ToolPrompt, WritesArgumentsThatAreNoJsonAsTheyAre) {
  const char* messages =
      R"([{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{\"a\": \"cu"}}]}])";
  EXPECT_EQ(placed(messages, ToolPlace::kSystemText, nullptr).messages[0]["content"],
            "<tool_call>\n{\"name\":\"f\",\"arguments\":{\"a\": \"cu}\n</tool_call>");
  ChatInput chat{.messages = Json::parse(messages)};
  place_tools(chat, nullptr, {.place = ToolPlace::kVariable, .takes_text_arguments = false}, format());
  EXPECT_EQ(chat.messages[0]["tool_calls"][0]["function"]["arguments"],
            Json::parse(R"({"INVALID_JSON": "{\"a\": \"cu"})"));
}

TEST(ToolPrompt, SeparatesWhatATemplateShowsOnlyAlone) {
  ChatInput chat{.messages = Json::parse(R"([{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "Look.", "reasoning_content": "Hm", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {}}},
        {"id": "2", "function": {"name": "g", "arguments": {}}}, {"id": "3", "function": {"name": "h", "arguments": {}}}]},
      {"role": "tool", "tool_call_id": "2", "content": "y"}, {"role": "tool", "tool_call_id": "1", "content": "x"},
      {"role": "tool", "tool_call_id": "4", "content": "z"}, {"role": "user", "content": "So?"}])")};
  place_tools(chat, nullptr, {.place = ToolPlace::kVariable, .shows_text_of_calls = false, .shows_all_calls = false},
              format());
  EXPECT_EQ(chat.messages, Json::parse(R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Look."},
      {"role": "assistant", "content": "", "reasoning_content": "Hm", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {}}}]},
      {"role": "tool", "tool_call_id": "1", "content": "x"},
      {"role": "assistant", "content": "", "tool_calls": [{"id": "2", "function": {"name": "g", "arguments": {}}}]},
      {"role": "tool", "tool_call_id": "2", "content": "y"},
      {"role": "assistant", "content": "", "tool_calls": [{"id": "3", "function": {"name": "h", "arguments": {}}}]},
      {"role": "tool", "tool_call_id": "4", "content": "z"}, {"role": "user", "content": "So?"}])"));
}

// As LFM2's and Granite 3.3's: tools have a place, calls have none.
TEST(ToolPrompt, WritesCallsAsTheModelDoesWhereATemplateShowsOnlyTools) {
  const auto chat = ChatTemplate::parse(
      "{{ tools | tojson }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}", "test");
  const ToolForm form = find_tool_form([&](ChatInput input) { return chat.render(input); });
  EXPECT_TRUE(form.place == ToolPlace::kVariable && !form.shows_calls && form.shows_results);
  const auto prompt = [&](const char* parser) {
    ChatInput input{.messages = Json::parse(R"([{"role": "assistant", "content": "Look.", "tool_calls": [
        {"function": {"name": "f", "arguments": {"a": [true, null, 1.5, {"b": "c"}], "d": "e"}}},
        {"function": {"name": "g", "arguments": "{\"cu"}}]}, {"role": "tool", "content": "x"}, {"role": "user", "content": "y"}])")};
    place_tools(input, nullptr, form, format(parser));
    return chat.render(input);
  };
  EXPECT_EQ(prompt("lfm2"),
            "null<assistant>Look.\n<|tool_call_start|>[f(a=[True, None, 1.5, {\"b\": \"c\"}], d=\"e\"), "
            "g({\"cu)]<|tool_call_end|><tool>x<user>y");
  EXPECT_EQ(prompt("nemotron_json"),
            "null<assistant>Look.\n<TOOLCALL>[{\"name\": \"f\", \"arguments\": "
            "{\"a\":[true,null,1.5,{\"b\":\"c\"}],\"d\":\"e\"}}, {\"name\": \"g\", "
            "\"arguments\": {\"cu}]</TOOLCALL><tool>x<user>y");
  EXPECT_EQ(prompt("glm45"),
            "null<assistant>Look.\n<tool_call>\n{\"name\":\"f\",\"arguments\":"
            "{\"a\":[true,null,1.5,{\"b\":\"c\"}],\"d\":\"e\"}}\n</tool_call>\n<tool_call>\n"
            "{\"name\":\"g\",\"arguments\":{\"cu}\n</tool_call><tool>x<user>y");
}

// As Kimi K2 Thinking's: the id has the name in it.
TEST(ToolPrompt, PutsNamesIntoIdsForTemplatesThatShowOnlyThose) {
  const auto chat = ChatTemplate::parse(
      "{{ tools | tojson }}{% for m in messages %}{% if m.role == 'tool' %}of {{ m.tool_call_id }}: {% endif %}{{ "
      "m.content }}"
      "{% for c in m.tool_calls or [] %}<{{ c.id }}>{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}",
      "test");
  const ToolForm form = find_tool_form([&](ChatInput input) { return chat.render(input); });
  EXPECT_TRUE(form.shows_calls && !form.shows_names && form.shows_text_of_calls && form.shows_all_calls);
  ChatInput input{
      .messages = Json::parse(
          R"([{"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {}}},
      {"id": "functions.g:7", "function": {"name": "g", "arguments": {}}}]}, {"role": "tool", "tool_call_id": "1", "content": "x"}])")};
  place_tools(input, nullptr, form, format());
  EXPECT_EQ(chat.render(input), "null<functions.f:0>{}<functions.g:7>{}of functions.f:0: x");
}

TEST(ToolPrompt, ShortensIdsForMistral) {
  const Json messages =
      placed(R"([{"role": "assistant", "content": "", "tool_calls": [{"id": "call_0123", "function": {}},
      {"id": "abcDEF123", "function": {}}]}, {"role": "tool", "tool_call_id": "call_0123", "content": ""}])",
             ToolPlace::kVariable, nullptr, format("mistral"))
          .messages;
  const std::string id = messages[0]["tool_calls"][0]["id"];
  EXPECT_EQ(id.size(), 9u);
  EXPECT_NE(id, "call_0123") << "has a _";
  EXPECT_EQ(messages[1]["tool_call_id"], id);
  EXPECT_EQ(messages[0]["tool_calls"][1]["id"], "abcDEF123");
}

TEST(ToolPrompt, NamesCallsInIdsForKimi) {
  const Json messages =
      placed(R"([{"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "function": {"name": "f"}},
      {"id": "call_2", "function": {"name": "g"}}]}, {"role": "tool", "tool_call_id": "call_2", "content": "2"},
      {"role": "tool", "tool_call_id": "other", "content": "3"},
      {"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "function": {"name": "f"}}]},
      {"role": "tool", "tool_call_id": "call_1", "content": "1"}])",
             ToolPlace::kVariable, nullptr, format("kimi_k2"))
          .messages;
  EXPECT_EQ(messages[0]["tool_calls"][0]["id"], "functions.f:0");
  EXPECT_EQ(messages[0]["tool_calls"][1]["id"], "functions.g:1");
  EXPECT_EQ(messages[1]["tool_call_id"], "functions.g:1");
  EXPECT_EQ(messages[2]["tool_call_id"], "other");
  EXPECT_EQ(messages[3]["tool_calls"][0]["id"], "functions.f:2");
  EXPECT_EQ(messages[4]["tool_call_id"], "functions.f:2");
}

TEST(ToolPrompt, NamesReasoningAsHarmonyDoes) {
  const Json messages = placed(R"([{"role": "assistant", "content": "a", "reasoning_content": "r"},
      {"role": "assistant", "content": "a", "reasoning_content": "r", "tool_calls": []}])",
                               ToolPlace::kVariable, nullptr, format("openai", "openai_gptoss"))
                            .messages;
  EXPECT_EQ(messages[0]["thinking"], "r");
  EXPECT_FALSE(messages[1].contains("thinking"));
}

}  // namespace
}  // namespace quire
