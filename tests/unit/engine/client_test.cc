// What hosts call beside the engine: texts, chats, pairs and schemas.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "error_of.h"
#include "paths.h"
#include "quire/chat.h"
#include "quire/machine.h"
#include "quire/structured_output.h"
#include "quire/text.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

void expect_says(const std::string& error, std::string_view part) {
  EXPECT_NE(error.find(part), std::string::npos) << error;
}

// A tiny decoder with a vocabulary that spells ASCII, and a template that shows all parts of a chat.
EngineOptions chat_options() {
  EngineOptions o = testing::tiny_options();
  o.model = (golden_dir() / "encoders-gguf/qwen3_embedding.gguf").string();
  o.chat_template =
      "{% for tool in tools or [] %}[{{ tool | tojson }}]{% endfor %}{% for m in messages %}{{ m.role }}:{{ m.content "
      "}};"
      "{% endfor %}{{ mood }}{% if add_generation_prompt %}>{% endif %}";
  return o;
}

TEST(Client, RendersChatsWithToolsAndVariables) {
  const Engine engine(chat_options());
  const std::string messages = R"([{"role": "user", "content": "hi"}])";
  EXPECT_EQ(render_messages(engine, messages), "user:hi;>");
  EXPECT_EQ(render_messages(engine, messages,
                            {.tools = R"([{"type": "function", "function": {"name": "f"}}])",
                             .template_kwargs = R"({"mood": "grim"})",
                             .add_generation_prompt = false}),
            R"([{"type": "function", "function": {"name": "f"}}]user:hi;grim)");
  EXPECT_EQ(encode_messages(engine, messages), encode_text(engine, "user:hi;>", false));
}

TEST(Client, RendersChatsByATemplateOfTheRequest) {
  const Engine engine(chat_options());
  const std::string messages = R"([{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}])";
  const MessagesOptions own{
      .template_kwargs = R"({"mood": "grim"})",
      .chat_template = "{% for m in messages %}<{{ m.content }}>{% endfor %}{{ mood }}{{ eos_token }}"};
  const std::string end = token_bytes(engine, *special_tokens(engine).eos);
  EXPECT_EQ(render_messages(engine, messages, own), "<s><hi>grim" + end);
  EXPECT_EQ(encode_messages(engine, messages, own), encode_text(engine, "<s><hi>grim", true));
  // Where a template has no system messages, the user's has their text.
  EXPECT_EQ(
      render_messages(engine, messages,
                      {.chat_template = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}"
                                        "{% endif %}<{{ m.content }}>{% endfor %}"}),
      "<s\n\nhi>");
  expect_says(error_of([&] { render_messages(engine, messages, {.chat_template = "{% if %}"}); }), "chat_template");
  expect_says(error_of([&] { render_messages(engine, messages, {.chat_template = "{{ messages[1].content }}"}); }),
              "messages[0]");
}

TEST(Client, RefusesBrokenChats) {
  const Engine engine(chat_options());
  const std::string messages = R"([{"role": "user", "content": "hi"}])";
  const auto error = [&](std::string_view text, const MessagesOptions& options = {}) {
    return error_of([&] { encode_messages(engine, text, options); });
  };
  expect_says(error("3"), "messages must be a list");
  expect_says(error("[]"), "at least one message");
  expect_says(error("[3]"), "messages[0] must be an object with a role");
  expect_says(error("["), "messages");
  expect_says(error(messages, {.tools = "{}"}), "tools must be a list");
  expect_says(error(messages, {.template_kwargs = "[]"}), "template_kwargs must be an object");
  expect_says(error(messages, {.continue_final_message = true}), "add_generation_prompt");
}

TEST(Client, EncodesAndDecodesWithAndWithoutSpecialTokens) {
  const Engine engine(chat_options());
  const TokenIds plain = encode_text(engine, "abc", false), whole = encode_text(engine, "abc");
  const SpecialTokens special = special_tokens(engine);
  ASSERT_TRUE(special.eos);
  EXPECT_EQ(whole.size(), plain.size() + 1);
  EXPECT_EQ(decode_tokens(engine, plain), "abc");
  EXPECT_EQ(decode_tokens(engine, whole, true), "abc");
  EXPECT_NE(decode_tokens(engine, whole), "abc");
  EXPECT_EQ(token_bytes(engine, plain[0]), "a");
  EXPECT_FALSE(token_bytes(engine, *special.eos).empty());
  expect_says(error_of([&] { decode_tokens(engine, TokenIds{-1}); }), "token id -1");
  expect_says(error_of([&] { decode_tokens(engine, TokenIds{100'000}); }), "token id 100000");
}

TEST(Client, EncodesPairsForCrossEncoders) {
  EngineOptions o = testing::tiny_options();
  o.model = (golden_dir() / "encoders-gguf/bert_cross.gguf").string();
  const Engine engine(o);
  const EncodedPair pair = encode_pair(engine, "query", "a document");
  EXPECT_LT(pair.second_text, pair.prompt.size());
  EXPECT_EQ(encode_pair(engine, "query", std::string(2000, 'x'), 20).prompt.size(), 20u);
}

TEST(Client, ScoresAreWhatTheModelSays) {
  const std::vector<float> results = {2, 1};
  EXPECT_EQ(score_of(results, Score::kRaw), 2);
  EXPECT_DOUBLE_EQ(score_of(results, Score::kSigmoid), 1 / (1 + std::exp(-2.0)));
  EXPECT_DOUBLE_EQ(score_of(results, Score::kYesNo), std::exp(2.0) / (std::exp(2.0) + std::exp(1.0)));
}

TEST(Client, SchemasForAnswersAreClosed) {
  const ConstraintSource source = closed_json_schema(R"({"type": "object", "properties": {"a": {}}})", "format");
  EXPECT_EQ(source.kind, ConstraintSource::Kind::kJsonSchema);
  EXPECT_EQ(source.text, R"({"type":"object","properties":{"a":{}},"additionalProperties":false})");
  EXPECT_EQ(source.label, "format");
  expect_says(error_of([] { closed_json_schema("{", "format"); }), "format");
}

TEST(Client, KnowsTheMachine) {
  EXPECT_GT(available_memory(), size_t{1} << 20);
  EXPECT_TRUE(default_tuning_file().empty() || default_tuning_file().has_filename());
}

}  // namespace
}  // namespace quire
