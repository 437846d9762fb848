#include "server/api_response.h"
#include "server/api_shapes.h"

namespace quire {

std::string_view finish_name(FinishReason reason) { return reason == FinishReason::kLength ? "length" : "stop"; }

AnswerBody::AnswerBody(ResponseHead head, TokenBytes token_bytes)
    : head_(std::move(head)), token_bytes_(std::move(token_bytes)), choices_(static_cast<size_t>(head_.choices)) {}

void AnswerBody::add(int index, const Output& output) {
  Choice& choice = choices_.at(static_cast<size_t>(index));
  choice.text += output.text;
  if (head_.logprobs) choice.tokens.insert(choice.tokens.end(), output.tokens.begin(), output.tokens.end());
  if (output.finish == FinishReason::kNone) return;
  choice.finish = output.finish;
  choice.stop_reason = output.stop_reason;
  choice.by_token = output.stop_token.has_value();
  choice.completion_tokens = output.usage.completion_tokens;
}

Json AnswerBody::choice_json(size_t index) const {
  const Choice& choice = choices_[index];
  const std::string echo = head_.echo.empty() ? "" : head_.echo[index / static_cast<size_t>(head_.n)];
  Json json = {{"index", index}};
  if (head_.api == Api::kChat) {
    json["message"] = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
  } else {
    json["text"] = echo + choice.text;
  }
  size_t offset = 0;
  json["logprobs"] = head_.logprobs ? logprobs_json(head_, choice.tokens, token_bytes_, offset) : Json();
  json["finish_reason"] = finish_name(choice.finish);
  if (!choice.stop_reason.empty()) json["stop_reason"] = stop_reason_json(choice.stop_reason, choice.by_token);
  return json;
}

std::string AnswerBody::json() const {
  Json choices = Json::array();
  int completion_tokens = 0;
  for (size_t i = 0; i < choices_.size(); ++i) {
    choices.push_back(choice_json(i));
    completion_tokens += choices_[i].completion_tokens;
  }
  return dump({{"id", head_.id},
               {"object", head_.api == Api::kChat ? "chat.completion" : "text_completion"},
               {"created", head_.created},
               {"model", head_.model},
               {"choices", std::move(choices)},
               {"usage", usage_json(head_.prompt_tokens, completion_tokens)}});
}

}  // namespace quire
