#include "text/chat_template.h"

#include "jinja/eval.h"
#include "jinja/print.h"
#include "jinja/time.h"
#include "jinja/unicode.h"

namespace quire {
namespace {

using nlohmann::ordered_json;

// Stands behind the last message's content so that its end can be found in the prompt. transformers has the same.
constexpr std::string_view kTag = "CONTINUE_FINAL_MESSAGE_TAG ";

size_t text_size(const ordered_json& json, int depth = 0) {
  if (depth > jinja::kMaxValueDepth) throw invalid("the input is nested more than {} deep", jinja::kMaxValueDepth);
  size_t size = 16;
  if (json.is_string()) size += json.get_ref<const std::string&>().size();
  if (json.is_array() || json.is_object())
    for (const auto& item : json) size += text_size(item, depth + 1);
  return size;
}

// Appends the tag to the last message; returns the text it now follows.
std::string tag_last_message(ordered_json& messages) {
  if (!messages.is_array() || messages.empty() || !messages.back().is_object() || !messages.back().contains("content"))
    throw invalid("continue_final_message needs a last message that has content");
  ordered_json* text = &messages.back()["content"];
  if (text->is_array()) {
    ordered_json* part = nullptr;
    for (auto& item : *text)
      if (item.is_object() && item.contains("text")) part = &item["text"];
    text = part;
  }
  if (text == nullptr || !text->is_string())
    throw invalid("continue_final_message is set but the final message has no text to continue");
  const std::string before = text->get<std::string>();
  *text = before + std::string(kTag);
  return before;
}

std::string cut_at_tag(std::string prompt, const std::string& final_text) {
  const std::string_view tag = jinja::strip(kTag, nullptr, true, true);
  const size_t at = prompt.rfind(tag);
  if (at == std::string::npos)
    throw invalid("continue_final_message is set but the final message ({} bytes) does not appear in the prompt",
                  final_text.size());
  const bool keeps_space = std::string_view(prompt).substr(at).starts_with(kTag);
  prompt.resize(at);
  if (!keeps_space) prompt.resize(jinja::strip(prompt, nullptr, false, true).size());
  return prompt;
}

}  // namespace

ChatTemplate ChatTemplate::parse(std::string source, std::string name) {
  return ChatTemplate(jinja::parse_program(std::move(source), std::move(name)));
}

const std::string& ChatTemplate::source() const { return program_->source; }

std::string ChatTemplate::render(const ChatInput& input) const {
  if (input.continue_final_message && input.add_generation_prompt)
    throw invalid("continue_final_message and add_generation_prompt exclude each other");
  if (!input.messages.is_array()) throw invalid("messages must be a list");
  size_t size = 0;
  for (const ordered_json* json : {&input.messages, &input.tools, &input.documents, &input.kwargs})
    size += text_size(*json);
  jinja::Meter meter(size);
  jinja::Evaluator evaluator(*program_, meter, input.now ? *input.now : jinja::local_now());
  try {
    std::string final_text;
    if (input.continue_final_message) {
      ordered_json messages = input.messages;
      final_text = tag_last_message(messages);
      evaluator.define("messages", jinja::from_json(meter, messages));
    } else {
      evaluator.define("messages", jinja::from_json(meter, input.messages));
    }
    evaluator.define("tools", jinja::from_json(meter, input.tools));
    evaluator.define("documents", jinja::from_json(meter, input.documents));
    evaluator.define("add_generation_prompt", input.add_generation_prompt);
    for (const ordered_json* variables : {&input.special_tokens, &input.kwargs}) {
      if (variables->is_null()) continue;
      if (!variables->is_object()) throw invalid("chat_template_kwargs must be an object");
      for (const auto& [name, value] : variables->items()) {
        if (name == "messages" || name == "tools")
          throw invalid("chat_template_kwargs: {} has a field of its own", name);
        evaluator.define(name, jinja::from_json(meter, value));
      }
    }
    std::string prompt = evaluator.run();
    return input.continue_final_message ? cut_at_tag(std::move(prompt), final_text) : prompt;
  } catch (const TemplateError&) {
    throw;
  } catch (const Error& e) {
    throw Error(e.kind(), fmt::format("{}:{}: {}", program_->name, evaluator.line(), e.what()));
  }
}

}  // namespace quire
