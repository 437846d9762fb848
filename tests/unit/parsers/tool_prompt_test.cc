// Tools and calls in prompts of templates that have a place for them, or none.
#include "parsers/tool_prompt.h"

#include <gtest/gtest.h>

#include "text/chat_template.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

ToolPlace place_in(const std::string& source) {
  const auto chat = ChatTemplate::parse(source, "test");
  return find_tool_place([&](ChatInput input) { return chat.render(input); });
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
  place_tools(chat, tools, place, answers);
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
      {"role": "user", "content": "<tool_response>\nx\n</tool_response>\n<tool_response>\ny\n</tool_response>"},
      {"role": "user", "content": "So?"}])"));
  EXPECT_EQ(placed(messages, ToolPlace::kVariable, nullptr).messages, Json::parse(messages));
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
