#include "server/api/answer/chat_format.h"

#include <algorithm>

#include "base/error.h"
#include "grammar/schema/closed_schema.h"
#include "parsers/call_arguments.h"
#include "server/api/definition.h"
#include "server/api/error.h"
#include "text/hidden_parts.h"
#include "text/token_frames.h"

namespace quire {
namespace {

constexpr size_t kTailTokens = 16;  // longer than any mark of a thought, with line ends

// The rest of `text` after white space at its end is removed.
std::string_view without_space(std::string_view text) { return text.substr(0, text.find_last_not_of(" \t\r\n") + 1); }

Json schema_of(const Json& tool) { return grammar::closed_schema(tool["function"].value("parameters", Json())); }

bool opens_thought(std::string_view text, const ReasoningFamily& family) {
  const size_t open = text.rfind(family.open), close = text.rfind(family.close);
  return open != std::string_view::npos && (close == std::string_view::npos || close < open);
}

// Path of a message in the request: "messages[3].content", "system".
std::string request_path(const ApiRequest& request, HiddenPart part) {
  if (!part.in_message()) return path_of(part);
  const std::string_view field = request.api->prompt_field.empty() ? "messages" : request.api->prompt_field;
  if (request.instructions && part.index-- == 0) return std::string(request.api->instructions_field);
  if (!request.chat_items.empty()) {
    part.index = request.chat_items[part.index];
    return fmt::format("{}[{}]", field, part.index);
  }
  return field == "prompt" ? "prompt" : path_of(part);
}

}  // namespace

ChatFormat::ChatFormat(const ServedText& text, const std::string& tool_parser, const std::string& reasoning_parser)
    : text_(text) {
  const std::string source = text.chat_template_source();
  if (!source.empty()) {
    form_ = find_tool_form([&](ChatInput chat) { return text.render_chat(std::move(chat)); });
  }
  const auto is_token = [&](std::string_view spelled) { return text.is_added_token(spelled); };
  // A model that is shown the generic description answers in its form.
  const std::string tools = tool_parser == "auto" && describes_tools() ? "json" : tool_parser;
  format_ = choose_format(source, is_token, tools, reasoning_parser);
}

void ChatFormat::require_shown(const ApiRequest& request) const {
  if (text_.chat_template_source().empty()) return;
  ChatInput chat = request.chat;
  chat.tools = request.tools;
  const auto hidden = find_hidden_part(chat, [this](ChatInput input) {
    place_tools(input, std::exchange(input.tools, nullptr), form_, format_);
    return text_.render_chat(std::move(input));
  });
  if (!hidden) return;
  const std::string path = request_path(request, *hidden);
  if (!hidden->in_message()) {
    throw bad_request(path,
                      "the model's chat template does not show this to the model; leave it out, or write it into a "
                      "message");
  }
  throw bad_request(path,
                    "the model's chat template leaves this message out of the prompt (number {} in the chat, role {}); "
                    "send its text in a message of another role or at another place",
                    hidden->index, describe(chat.messages[hidden->index]["role"]));
}

void ChatFormat::prepare(ApiRequest& request) const {
  require_shown(request);
  place_tools(request.chat, request.tools, form_, format_);
}

std::shared_ptr<const AnswerReading> ChatFormat::reading(const ApiRequest& request, const TokenIds& prompt) const {
  const bool calls = !request.tools.is_null() && format_.tools;
  if (!calls && !format_.reasoning) return nullptr;
  auto reading = std::make_shared<AnswerReading>();
  reading->format = format_;
  reading->parallel_tool_calls = request.parallel_tool_calls;
  reading->include_reasoning = request.include_reasoning;
  reading->stops = prepare_stops(request.sampling.stop);
  reading->include_stop = request.sampling.include_stop_str_in_output;
  reading->min_tokens = request.sampling.min_tokens;
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
    const std::string text = text_.decode(tail);
    options.inside_thought = without_space(text).ends_with(format_.reasoning->open);
    if (options.continues && !request.chat.messages.empty()) {
      const Json& last = request.chat.messages.back();
      options.inside_thought |= opens_thought(last.value("content", ""), *format_.reasoning);
    }
    reading->thought_over = without_space(text).ends_with(format_.reasoning->close);
    if (reading->thought_over) reading->format.starts_inside = false;
  }
  return reading;
}

std::optional<ConstraintSource> ChatFormat::constraint(const ApiRequest& request, const AnswerReading* reading) const {
  using Calls = AnswerRules::Calls;
  const ToolChoice& choice = request.tool_choice;
  const bool forced = choice.kind == ToolChoice::kRequired || choice.kind == ToolChoice::kNamed;
  AnswerRules rules{.several_calls = request.parallel_tool_calls && choice.kind != ToolChoice::kNamed,
                    .text = request.constraint_source};
  bool strict = false;
  for (const Json& tool : request.tools) {
    const Json& function = tool["function"];
    const auto& name = function["name"].get_ref<const std::string&>();
    if (choice.kind == ToolChoice::kNamed && name != choice.name) continue;
    const ToolRule& rule = *std::ranges::find(request.tool_rules, name, &ToolRule::name);
    strict |= rule.strict;
    const bool follows_schema = rule.strict || (forced && !rule.any_object);
    rules.tools.push_back({name, follows_schema ? schema_of(tool) : Json(), rule.schema_field});
  }
  if (!rules.text && !forced && !strict) return std::nullopt;
  if (forced && !format_.tools) {
    throw unsupported("calls cannot be forced, because the server does not read them (--tool-call-parser none)");
  }
  if (!reading) return rules.text;
  if (forced || (format_.tools && !rules.tools.empty())) rules.calls = forced ? Calls::kMust : Calls::kMay;
  rules.may_think = !reading->thought_over;
  return constrain_answer(reading->format, reading->options, rules);
}

ConstraintSource ChatFormat::arguments(const Json& tool, const ToolRule& rule) const {
  return call_arguments(format_, schema_of(tool), rule.schema_field);
}

std::optional<ThoughtBudget> ChatFormat::thought_budget(const ApiRequest& request, const AnswerReading* reading) const {
  if (!request.max_reasoning_tokens || !reading || !reading->format.reasoning) return std::nullopt;
  const ReasoningFamily& family = *reading->format.reasoning;
  const auto framed = [&](std::string_view mark) {
    return text_.is_added_token(mark) ? kSpecialFrame + std::string(mark) + kFrameEnd : std::string(mark);
  };
  ThoughtBudget budget{.tokens = *request.max_reasoning_tokens,
                       .inside = reading->options.inside_thought || reading->format.starts_inside};
  std::string closing(family.close);
  if (family.harmony) {
    budget.open = framed("<|channel|>") + "analysis";
    budget.close = framed("<|end|>");
    closing = "<|end|><|start|>assistant";
    if (request.tools.is_null()) closing += "<|channel|>final<|message|>";
  } else {
    budget.open = framed(family.open);
    budget.close = framed(family.close);
  }
  budget.closing = text_.encode(closing, {.add_special = false, .parse_special = true});
  return budget;
}

}  // namespace quire
