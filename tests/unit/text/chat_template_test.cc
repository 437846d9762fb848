#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <thread>

#include "jinja/builtins/time.h"

namespace quire {
namespace {

using nlohmann::ordered_json;

const char* const kChat =
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if add_generation_prompt "
    "%}<assistant>{% endif %}";

ordered_json chat_of(const std::string& last) {
  return {{{"role", "user"}, {"content", "Hi"}}, {{"role", "assistant"}, {"content", last}}};
}

TEST(ChatTemplate, RendersMessagesAndSpecialTokens) {
  const ChatTemplate chat = ChatTemplate::parse(kChat, "m");
  EXPECT_EQ(
      chat.render({.messages = {{{"role", "user"}, {"content", "Hi"}}}, .special_tokens = {{"bos_token", "<s>"}}}),
      "<s><user>Hi</><assistant>");
  EXPECT_EQ(chat.source(), kChat);
}

TEST(ChatTemplate, AlwaysDefinesToolsAndDocuments) {
  EXPECT_EQ(ChatTemplate::parse("{{ tools }} {{ documents }} {{ other is defined }}", "m").render({}),
            "None None False");
}

TEST(ChatTemplate, KwargsOverrideOtherVariables) {
  const ChatTemplate chat = ChatTemplate::parse("{{ bos_token }}{{ enable_thinking }}{{ add_generation_prompt }}", "m");
  EXPECT_EQ(chat.render({.special_tokens = {{"bos_token", "a"}},
                         .kwargs = {{"bos_token", "b"}, {"enable_thinking", false}, {"add_generation_prompt", 5}}}),
            "bFalse5");
  EXPECT_THROW(chat.render({.kwargs = {{"messages", 1}}}), Error);
}

TEST(ChatTemplate, ThrowsTheTemplatesOwnErrorUnchanged) {
  const ChatTemplate chat = ChatTemplate::parse("\n{{ raise_exception('roles must ' ~ 'alternate') }}", "m");
  try {
    chat.render({});
    FAIL();
  } catch (const TemplateError& e) {
    EXPECT_STREQ(e.what(), "roles must alternate");
    EXPECT_EQ(e.kind(), ErrorKind::kInvalid);
  }
}

TEST(ChatTemplate, ContinuesTheFinalMessage) {
  const ChatTemplate chat = ChatTemplate::parse(kChat, "m");
  ChatInput in{.messages = chat_of("One, two, "), .add_generation_prompt = false, .continue_final_message = true};
  EXPECT_EQ(chat.render(in), "<user>Hi</><assistant>One, two, ");
  const ChatTemplate trimming = ChatTemplate::parse("{% for m in messages %}{{ m.content|trim }}.{% endfor %}", "m");
  EXPECT_EQ(trimming.render(in), "Hi.One, two,");
  in.messages.back()["content"] = {{{"type", "text"}, {"text", "One"}}};
  EXPECT_EQ(ChatTemplate::parse("{{ messages[-1].content[0].text }}!", "m").render(in), "One");
  EXPECT_THROW(ChatTemplate::parse("nothing", "m").render(in), Error);
  in.add_generation_prompt = true;
  EXPECT_THROW(chat.render(in), Error);
  in.add_generation_prompt = false;
  in.messages = ordered_json::array();
  EXPECT_THROW(chat.render(in), Error);
}

TEST(ChatTemplate, UsesTheGivenTime) {
  const ChatTemplate chat = ChatTemplate::parse("{{ strftime_now('%d %b %Y %H:%M:%S %j %A %-d %%') }}", "m");
  EXPECT_EQ(chat.render({.now = jinja::parse_time("2026-11-21T12:34:56")}), "21 Nov 2026 12:34:56 325 Saturday 21 %");
  EXPECT_THROW(ChatTemplate::parse("{{ strftime_now('%99999d') }}", "m").render({}), Error);
  EXPECT_THROW(jinja::parse_time("2026-02-30T00:00:00"), Error);
}

TEST(ChatTemplate, KeepsTheOrderOfKeysAndBigIntegers) {
  ChatInput in;
  in.tools = ordered_json::parse(R"([{"z": 1, "a": 18446744073709551615, "m": {"y": 1.0, "b": null}}])");
  EXPECT_EQ(ChatTemplate::parse("{{ tools|tojson }}", "m").render(in),
            R"([{"z": 1, "a": 18446744073709551615, "m": {"y": 1.0, "b": null}}])");
}

TEST(ChatTemplate, RefusesInputNestedTooDeeply) {
  ordered_json deep = 1;
  for (int i = 0; i < 2000; ++i) deep = ordered_json::array({std::move(deep)});
  ChatInput in;
  in.messages = std::move(deep);
  EXPECT_THROW(ChatTemplate::parse("{{ messages }}", "m").render(in), Error);
}

TEST(ChatTemplate, CanBeRenderedByManyThreads) {
  const ChatTemplate chat =
      ChatTemplate::parse(std::string("{% macro m(x) %}{{ x|upper }}{% endmacro %}{{ m('a') }}") + kChat, "m");
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < texts.size(); ++i)
    threads.emplace_back([&, i] {
      for (int k = 0; k < 200; ++k) texts[i] = chat.render({.messages = chat_of(std::to_string(i))});
    });
  for (std::thread& t : threads) t.join();
  for (size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(texts[i], "A<user>Hi</><assistant>" + std::to_string(i) + "</><assistant>");
}

}  // namespace
}  // namespace quire
