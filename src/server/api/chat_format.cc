#include "server/api/chat_format.h"

#include <algorithm>

namespace quire {
namespace {

constexpr size_t kTailTokens = 16;  // longer than any mark of a thought, with line ends

// The rest of `text` after white space at its end is removed.
std::string_view without_space(std::string_view text) { return text.substr(0, text.find_last_not_of(" \t\r\n") + 1); }

bool opens_thought(std::string_view text, const ReasoningFamily& family) {
  const size_t open = text.rfind(family.open), close = text.rfind(family.close);
  return open != std::string_view::npos && (close == std::string_view::npos || close < open);
}

}  // namespace

ChatFormat::ChatFormat(const Completer& completer, const std::string& tool_parser, const std::string& reasoning_parser)
    : completer_(completer) {
  const std::string source = completer.chat_template_source();
  if (!source.empty()) {
    place_ = find_tool_place([&](ChatInput chat) { return completer.render_chat(std::move(chat)); });
  }
  const auto is_token = [&](std::string_view text) { return completer.is_added_token(text); };
  // A model that is shown the generic description answers in its form.
  const std::string tools = tool_parser == "auto" && describes_tools() ? "json" : tool_parser;
  format_ = choose_format(source, is_token, tools, reasoning_parser);
}

void ChatFormat::prepare(ApiRequest& request) const { place_tools(request.chat, request.tools, place_, format_); }

std::shared_ptr<const AnswerReading> ChatFormat::reading(const ApiRequest& request, const TokenIds& prompt) const {
  const bool calls = !request.tools.is_null() && format_.tools;
  if (!calls && !format_.reasoning) return nullptr;
  auto reading = std::make_shared<AnswerReading>();
  reading->format = format_;
  reading->parallel_tool_calls = request.parallel_tool_calls;
  reading->include_reasoning = request.include_reasoning;
  AnswerOptions& options = reading->options;
  options.show_special = !request.sampling.skip_special_tokens;
  options.continues = request.chat.continue_final_message;
  if (calls) {
    auto tools = std::make_shared<ToolList>();
    for (const Json& tool : request.tools) {
      const Json& function = tool["function"];
      tools->push_back({function["name"], function.value("parameters", Json())});
    }
    options.tools = std::move(tools);
  }
  if (format_.reasoning && !format_.reasoning->harmony) {
    const TokenIds tail(prompt.end() - static_cast<ptrdiff_t>(std::min(prompt.size(), kTailTokens)), prompt.end());
    const std::string text = completer_.decode(tail);
    options.inside_thought = without_space(text).ends_with(format_.reasoning->open);
    if (options.continues && !request.chat.messages.empty()) {
      const Json& last = request.chat.messages.back();
      options.inside_thought |= opens_thought(last.value("content", ""), *format_.reasoning);
    }
    if (without_space(text).ends_with(format_.reasoning->close)) reading->format.starts_inside = false;
  }
  return reading;
}

}  // namespace quire
