// Chats in the roles and the order that a template takes, and what a prompt hides all the same.
#include "text/message_roles.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "text/hidden_parts.h"
#include "text/named_templates.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

MessageRoles roles_of(const std::string& source) {
  const ChatTemplate chat = ChatTemplate::parse(source, "test");
  return find_message_roles(source, [&](const ChatInput& input) { return chat.render(input); });
}

constexpr const char
    *kPrintsRoles = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}",
    *kAlternates =
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('must alternate') }}{% endif %}{{ m.content }}{% endfor %}",
    *kOneSystem =
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('first') }}"
        "{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}",
    *kDeveloper =
        "{% for m in messages %}{% if m.role == 'developer' or m.role == \"user\" %}{{ m.content }}{% endif %}"
        "{% endfor %}";

TEST(MessageRoles, AreLearntFromTheTemplate) {
  const MessageRoles all = roles_of(kPrintsRoles);
  EXPECT_FALSE(all.developer) << "it prints any role, but does not know this one";
  EXPECT_TRUE(all.system && all.several_leading && all.late_system && all.system_before_end);
  EXPECT_TRUE(all.user_runs && all.assistant_runs && !all.counts_across_calls);
  const MessageRoles one = roles_of(kOneSystem);
  EXPECT_TRUE(one.system && !one.several_leading && !one.late_system && one.user_runs);
  const MessageRoles alternating = roles_of(kAlternates);
  EXPECT_TRUE(!alternating.system && !alternating.user_runs && !alternating.assistant_runs);
  const MessageRoles developer = roles_of(kDeveloper);
  EXPECT_TRUE(developer.developer && !developer.system);
  const MessageRoles nothing = roles_of("nothing");
  EXPECT_TRUE(nothing.developer && nothing.system && nothing.user_runs) << "there is nothing to learn";
}

Json fitted(const char* messages, const MessageRoles& roles) {
  ChatInput chat{.messages = Json::parse(messages)};
  fit_chat(chat, roles);
  return chat.messages;
}

constexpr const char* kInstructions = R"([{"role": "system", "content": "a"}, {"role": "developer", "content": "b"},
    {"role": "user", "content": "c"}, {"role": "developer", "content": "d"}, {"role": "user", "content": "e"}])";

TEST(MessageRoles, GiveInstructionsAPlace) {
  EXPECT_EQ(fitted(kInstructions, {}), Json::parse(kInstructions));
  EXPECT_EQ(fitted(kInstructions, {.developer = false}), Json::parse(R"([{"role": "system", "content": "a"},
      {"role": "system", "content": "b"}, {"role": "user", "content": "c"}, {"role": "system", "content": "d"},
      {"role": "user", "content": "e"}])"));
  EXPECT_EQ(fitted(kInstructions, {.developer = false, .several_leading = false}),
            Json::parse(R"([{"role": "system", "content": "a\n\nb"}, {"role": "user", "content": "c"},
      {"role": "system", "content": "d"}, {"role": "user", "content": "e"}])"));
  EXPECT_EQ(fitted(kInstructions, {.late_system = false}), Json::parse(R"([{"role": "system", "content": "a\n\nb\n\nd"},
      {"role": "user", "content": "c"}, {"role": "user", "content": "e"}])"));
  EXPECT_EQ(fitted(kInstructions, {.system = false}),
            Json::parse(R"([{"role": "user", "content": "a\n\nb\n\nd\n\nc"}, {"role": "user", "content": "e"}])"));
  EXPECT_EQ(fitted(kInstructions, {.system = false, .user_runs = false}),
            Json::parse(R"([{"role": "user", "content": "a\n\nb\n\nd\n\nc\n\ne"}])"));
  EXPECT_EQ(fitted(R"([{"role": "user", "content": "a"}, {"role": "system", "content": "b", "tools": "t"}])",
                   {.late_system = false}),
            Json::parse(R"([{"role": "system", "content": "b", "tools": "t"}, {"role": "user", "content": "a"}])"));
  EXPECT_EQ(fitted(R"([{"role": "system", "content": "a"}])", {.system = false}),
            Json::parse(R"([{"role": "user", "content": "a"}])"));
  EXPECT_EQ(
      fitted(R"([{"role": "system", "content": [{"type": "text", "text": "a"}]}, {"role": "user", "content": "b"}])",
             {.system = false}),
      Json::parse(R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])"));
}

TEST(MessageRoles, JoinOnlyWhatWouldBeRefused) {
  constexpr const char* kRuns = R"([{"role": "user", "content": "a"}, {"role": "user", "content": "b"},
      {"role": "assistant", "content": "c"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]},
      {"role": "tool", "content": "d"}, {"role": "assistant", "content": "e"}, {"role": "user", "content": "f"}])";
  EXPECT_EQ(fitted(kRuns, {}), Json::parse(kRuns));
  EXPECT_EQ(
      fitted(kRuns, {.user_runs = false, .assistant_runs = false}),
      Json::parse(
          R"([{"role": "user", "content": "a\n\nb"}, {"role": "assistant", "content": "c", "tool_calls": [{"id": "1"}]},
      {"role": "tool", "content": "d"}, {"role": "assistant", "content": "e"}, {"role": "user", "content": "f"}])"));
  EXPECT_EQ(
      fitted(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]},
      {"role": "tool", "content": "d"}, {"role": "user", "content": "f"}])",
             {.user_runs = false, .counts_across_calls = true}),
      Json::parse(
          R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]},
      {"role": "tool", "content": "d"}, {"role": "assistant", "content": ""}, {"role": "user", "content": "f"}])"));
}

TEST(MessageRoles, SystemMessagesThatNeedTheUserAtTheEndGoToHisLastMessage) {
  const MessageRoles roles = roles_of(
      "{% if messages[0].role == 'system' %}{% set s = messages[0].content %}{% set rest = messages[1:] %}{% else %}"
      "{% set rest = messages %}{% endif %}{% for m in rest %}{{ s if loop.last and m.role == 'user' }}{{ m.content }}"
      "{% endfor %}");
  EXPECT_FALSE(roles.system_before_end);
  constexpr const char* kAsked = R"([{"role": "system", "content": "s"}, {"role": "user", "content": "a"}])";
  EXPECT_EQ(fitted(kAsked, roles), Json::parse(kAsked));
  EXPECT_EQ(
      fitted(R"([{"role": "system", "content": "s"}, {"role": "user", "content": "a"}, {"role": "user", "content": "b"},
      {"role": "tool", "content": "c"}])",
             roles),
      Json::parse(
          R"([{"role": "user", "content": "a"}, {"role": "user", "content": "s\n\nb"}, {"role": "tool", "content": "c"}])"));
}

TEST(MessageRoles, GiveTemplatesThatNeedItAnEmptyListOfTools) {
  const std::string source = std::string("{% for t in tools %}{{ t }}{% endfor %}") + kOneSystem;
  const MessageRoles roles = roles_of(source);
  EXPECT_TRUE(roles.needs_tools && roles.system && !roles.late_system);
  ChatInput chat{.messages = Json::parse(R"([{"role": "user", "content": "a"}])")};
  EXPECT_THROW(ChatTemplate::parse("{% for t in none %}{% endfor %}", "t").render(chat), Error);
  fit_chat(chat, roles);
  EXPECT_EQ(ChatTemplate::parse(source, "t").render(chat), "<user>a");
}

TEST(HiddenParts, AreFoundWhateverTheTemplateDoesToTexts) {
  const auto hidden = [](const std::string& source, ChatInput input) {
    const ChatTemplate chat = ChatTemplate::parse(source, "test");
    const auto part = find_hidden_part(input, [&](const ChatInput& given) { return chat.render(given); });
    return part ? path_of(*part) : "";
  };
  ChatInput chat{
      .messages = Json::parse(R"([{"role": "user", "content": " a \n"}, {"role": "assistant", "content": "aa",
      "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, "y"]}}}]}, {"role": "user", "content": "aaa"}])"),
      .documents = Json::parse(R"([{"title": "t", "text": "d"}])")};
  EXPECT_EQ(hidden("{{ messages }}{{ documents }}", chat), "");
  EXPECT_EQ(hidden("{{ messages | tojson }}{{ documents[0].text }}", chat), "");
  EXPECT_EQ(hidden("{{ messages[0].content | trim | upper }}{{ messages[1:] }}{{ documents }}", chat), "");
  EXPECT_EQ(hidden("{{ messages | tojson }}", chat), "documents[0]");
  EXPECT_EQ(hidden("{{ messages[1:] | tojson }}{{ documents }}", chat), "messages[0].content");
  EXPECT_EQ(hidden("{{ messages | map(attribute='content') | join }}{{ documents }}", chat),
            "messages[1].tool_calls[0]");
  EXPECT_EQ(hidden("{{ messages | map(attribute='content') | join }}{{ messages[1].tool_calls[0].function.name }}{{ "
                   "documents }}",
                   chat),
            "messages[1].tool_calls[0]")
      << "without its arguments";
  EXPECT_EQ(hidden("{{ raise_exception('no') }}", chat), "") << "the template says it itself";
  EXPECT_THROW(require_shown(chat, [](const ChatInput&) { return std::string("x"); }), Error);
}

TEST(NamedTemplates, AreUsedWhereAFileHasTheirName) {
  EXPECT_EQ(template_or_named("{{ messages }}", "f"), "{{ messages }}");
  EXPECT_EQ(template_or_named("chatml", "f"), named_template("chatml"));
  EXPECT_EQ(template_or_named(" llama3\n", "f"), named_template("llama3"));
  EXPECT_EQ(template_or_named(" \n", "f"), std::nullopt);
  for (const char* bad : {"monarch", "Answer the user.", "messages", "{# only a comment #}"}) {
    EXPECT_THROW(template_or_named(bad, "f"), Error) << bad;
  }
  const Json messages = Json::parse(R"([{"role": "system", "content": "sys-1"}, {"role": "user", "content": "user-1"},
      {"role": "assistant", "content": "answer-1"}, {"role": "user", "content": "user-2"}])");
  for (const std::string_view name : template_names()) {
    const ChatTemplate chat = ChatTemplate::parse(*named_template(name), std::string(name));
    const auto render = [&](ChatInput input) {
      input.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
      return chat.render(input);
    };
    const MessageRoles roles = find_message_roles(chat.source(), render);
    const auto fitted_render = [&](ChatInput input) {
      fit_chat(input, roles);
      return render(std::move(input));
    };
    EXPECT_EQ(find_hidden_part({.messages = messages}, fitted_render), std::nullopt) << name;
    EXPECT_TRUE(roles.user_runs) << name;
  }
}

}  // namespace
}  // namespace quire
