#include "server/api/answer_parts.h"

#include <algorithm>
#include <numeric>

namespace quire {

std::string_view finish_name(FinishReason reason) { return reason == FinishReason::kLength ? "length" : "stop"; }

Json stop_reason_json(const std::string& reason, bool by_token) {
  int id = 0;
  const auto [end, error] = std::from_chars(reason.data(), reason.data() + reason.size(), id);
  const bool whole = error == std::errc() && end == reason.data() + reason.size();
  return by_token && whole ? Json(id) : Json(reason);
}

void UsageSum::add(size_t choice, const Output& output) {
  completion[choice] += static_cast<int>(output.tokens.size());
  if (output.finish == FinishReason::kNone) return;
  completion[choice] = output.usage.completion_tokens;
  cached[choice] = output.usage.cached_tokens;
}

int UsageSum::completion_tokens() const { return std::accumulate(completion.begin(), completion.end(), 0); }

int UsageSum::cached_tokens(int n) const {
  int sum = 0;
  for (size_t i = 0; i < cached.size(); i += static_cast<size_t>(n)) sum += cached[i];
  return sum;
}

Json usage_json(const ResponseHead& head, const UsageSum& sum) {
  const int completion = sum.completion_tokens();
  return {{"prompt_tokens", head.prompt_tokens},
          {"completion_tokens", completion},
          {"total_tokens", head.prompt_tokens + completion},
          {"prompt_tokens_details", {{"cached_tokens", sum.cached_tokens(head.n)}}}};
}

Json token_ids_json(const std::vector<OutputToken>& tokens) {
  Json ids = Json::array();
  for (const OutputToken& token : tokens) ids.push_back(token.id);
  return ids;
}

void append_typed_event(const Json& data, std::string& out) {
  out += "event: " + data["type"].get_ref<const std::string&>() + "\ndata: " + dump(data) + "\n\n";
}

void Answer::fail(const ApiError& error, std::string& out) { out += "data: " + error_body(error) + "\n\n"; }

std::unique_ptr<Answer> make_answer(ResponseHead head, TokenBytes token_bytes) {
  switch (head.api) {
    case Api::kResponse:
      return response_answer(std::move(head));
    case Api::kMessage:
      return message_answer(std::move(head));
    case Api::kEmbedding:
      return embeddings_body(std::move(head));
    default:
      return head.stream ? openai_stream(std::move(head), std::move(token_bytes))
                         : openai_body(std::move(head), std::move(token_bytes));
  }
}

std::unique_ptr<Answer> ready_answer(std::string body) {
  class Ready final : public Answer {
   public:
    explicit Ready(std::string body) : body_(std::move(body)) {}
    void add(int, const Output&, std::string&) override {}
    void end(std::string& out) override { out = std::move(body_); }  // the first that is said

   private:
    std::string body_;
  };
  return std::make_unique<Ready>(std::move(body));
}

}  // namespace quire
