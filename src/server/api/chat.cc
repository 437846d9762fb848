// Whole chats and completions.
#include "server/api/answer_parts.h"

namespace quire {
namespace {

class OpenAiBody final : public Answer {
 public:
  OpenAiBody(ResponseHead head, TokenBytes token_bytes)
      : head_(std::move(head)),
        token_bytes_(std::move(token_bytes)),
        choices_(static_cast<size_t>(head_.choices)),
        usage_(head_.choices) {}

  void add(int index, const Output& output, std::string&) override {
    const auto at = static_cast<size_t>(index);
    Choice& choice = choices_.at(at);
    usage_.add(at, output);
    choice.text += output.text;
    if (head_.logprobs || head_.token_ids) {
      choice.tokens.insert(choice.tokens.end(), output.tokens.begin(), output.tokens.end());
    }
    if (!output.prompt_logprobs.empty()) choice.prompt = output.prompt_logprobs;
    if (output.finish == FinishReason::kNone) return;
    choice.finish = output.finish;
    choice.stop_reason = output.stop_reason;
    choice.by_token = output.stop_token.has_value();
  }

  void end(std::string& out) override {
    const bool chat = head_.api == Api::kChat;
    Json choices = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) choices.push_back(choice_json(i));
    Json body = {{"id", head_.id},
                 {"object", chat ? "chat.completion" : "text_completion"},
                 {"created", head_.created},
                 {"model", head_.model},
                 {"choices", std::move(choices)},
                 {"usage", usage_json(head_, usage_)}};
    if (chat) add_prompt(0, body);
    out += dump(body);
  }

 private:
  struct Choice {
    std::string text, stop_reason;
    std::vector<OutputToken> tokens, prompt;
    FinishReason finish = FinishReason::kNone;
    bool by_token = false;  // what stop_reason names is a token
  };

  size_t prompt_of(size_t choice) const { return choice / static_cast<size_t>(head_.n); }

  // What is known of a prompt; it came with the first of its choices.
  void add_prompt(size_t choice, Json& json) const {
    const size_t prompt = prompt_of(choice);
    if (head_.prompt_logprobs) {
      json["prompt_logprobs"] =
          prompt_logprobs_json(choices_[prompt * static_cast<size_t>(head_.n)].prompt, token_bytes_);
    }
    if (head_.token_ids) json["prompt_token_ids"] = head_.prompts[prompt];
  }

  Json choice_json(size_t index) const {
    const Choice& choice = choices_[index];
    const bool echo = !head_.echo.empty();
    Json json = {{"index", index}};
    if (head_.api == Api::kChat) {
      json["message"] = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
    } else {
      json["text"] = (echo ? head_.echo[prompt_of(index)] : "") + choice.text;
    }
    json["logprobs"] = nullptr;
    if (head_.logprobs) {
      TextOffset offset = 0;
      const Choice& first = choices_[prompt_of(index) * static_cast<size_t>(head_.n)];
      json["logprobs"] = logprobs_json(head_, choice.tokens, token_bytes_, offset, echo ? &first.prompt : nullptr);
    }
    json["finish_reason"] = finish_name(choice.finish);
    if (!choice.stop_reason.empty()) json["stop_reason"] = stop_reason_json(choice.stop_reason, choice.by_token);
    if (head_.token_ids) json["token_ids"] = token_ids_json(choice.tokens);
    if (head_.api == Api::kCompletion) add_prompt(index, json);
    return json;
  }

  ResponseHead head_;
  TokenBytes token_bytes_;
  std::vector<Choice> choices_;
  UsageSum usage_;
};

}  // namespace

std::unique_ptr<Answer> openai_body(ResponseHead head, TokenBytes token_bytes) {
  return std::make_unique<OpenAiBody>(std::move(head), std::move(token_bytes));
}

}  // namespace quire
