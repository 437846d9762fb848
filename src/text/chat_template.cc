#include "text/chat_template.h"

#include "base/error.h"
#include "jinja/value/unicode.h"

namespace quire {
namespace {

using nlohmann::ordered_json;

// Follows the last message's content, so that its end can be found in the prompt. transformers uses the same tag.
constexpr std::string_view kTag = "CONTINUE_FINAL_MESSAGE_TAG ";

// Appends the tag to the last message; returns the text before the tag.
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
    throw invalid("continue_final_message is set, but the final message has no text to continue");
  const std::string before = text->get<std::string>();
  *text = before + std::string(kTag);
  return before;
}

std::string cut_at_tag(std::string prompt, const std::string& final_text) {
  const std::string_view tag = jinja::strip(kTag, nullptr, true, true);
  const size_t at = prompt.rfind(tag);
  if (at == std::string::npos)
    throw invalid("continue_final_message is set, but the final message ({} bytes) does not appear in the prompt",
                  final_text.size());
  const bool keeps_space = std::string_view(prompt).substr(at).starts_with(kTag);
  prompt.resize(at);
  if (!keeps_space) prompt.resize(jinja::strip(prompt, nullptr, false, true).size());
  return prompt;
}

}  // namespace

std::string ChatTemplate::render(const ChatInput& input) const {
  if (input.continue_final_message && input.add_generation_prompt)
    throw invalid("continue_final_message and add_generation_prompt exclude each other");
  if (!input.messages.is_array()) throw invalid("messages must be a list");
  ordered_json tagged;
  std::string final_text;
  if (input.continue_final_message) {
    tagged = input.messages;
    final_text = tag_last_message(tagged);
  }
  const ordered_json add_generation_prompt = input.add_generation_prompt;
  std::vector<jinja::Variable> variables = {{"messages", input.continue_final_message ? &tagged : &input.messages},
                                            {"tools", &input.tools},
                                            {"documents", &input.documents},
                                            {"add_generation_prompt", &add_generation_prompt}};
  for (const ordered_json* more : {&input.special_tokens, &input.kwargs}) {
    if (more->is_null()) continue;
    if (!more->is_object()) throw invalid("chat_template_kwargs must be an object");
    for (const auto& [name, value] : more->items()) {
      if (name == "messages" || name == "tools") throw invalid("chat_template_kwargs: use the field {} instead", name);
      variables.push_back({name, &value});
    }
  }
  std::string prompt = template_.render(variables, input.now ? *input.now : jinja::local_now());
  return input.continue_final_message ? cut_at_tag(std::move(prompt), final_text) : prompt;
}

}  // namespace quire
