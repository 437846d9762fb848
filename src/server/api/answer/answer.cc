#include "server/api/answer/answer.h"

#include <charconv>
#include <numeric>
#include <random>

#include "parsers/tool_prompt.h"

namespace quire {

void Answer::fail(const ApiError& error, std::string& out) { out += "data: " + error_body(error) + "\n\n"; }

std::unique_ptr<Answer> ready_answer(std::string body) {
  class Ready final : public Answer {
   public:
    explicit Ready(std::string body) : body_(std::move(body)) {}
    void add(int, const Output&, std::string&) override {}
    void end(std::string& out) override { out = std::move(body_); }

   private:
    std::string body_;
  };
  return std::make_unique<Ready>(std::move(body));
}

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

void append_typed_event(const Json& data, std::string& out) {
  out += "event: " + data["type"].get_ref<const std::string&>() + "\ndata: " + dump(data) + "\n\n";
}

std::string random_id(std::string_view prefix) {
  thread_local std::random_device device;
  std::string id(prefix);
  for (int i = 0; i < 4; ++i) id += fmt::format("{:08x}", device());
  return id;
}

Json call_arguments_json(const std::string& arguments) {
  try {
    Json object = parse_json(arguments.empty() ? "{}" : arguments, "");
    if (object.is_object()) return object;
  } catch (const JsonError&) {
  }
  return {{kInvalidArguments, arguments}};
}

std::string_view finish_name(FinishReason reason) { return reason == FinishReason::kLength ? "length" : "stop"; }

Json stop_reason_json(const std::string& reason, bool by_token) {
  int id = 0;
  const auto [end, error] = std::from_chars(reason.data(), reason.data() + reason.size(), id);
  const bool whole = error == std::errc() && end == reason.data() + reason.size();
  return by_token && whole ? Json(id) : Json(reason);
}

Json token_ids_json(const std::vector<OutputToken>& tokens) {
  Json ids = Json::array();
  for (const OutputToken& token : tokens) ids.push_back(token.id);
  return ids;
}

void UsageSum::add(size_t choice, const Output& output) {
  completion[choice] += static_cast<int>(output.tokens.size());
  if (output.finish == FinishReason::kNone) return;
  completion[choice] = output.usage.completion_tokens;
  cached[choice] = output.usage.cached_tokens;
  drafted += output.usage.drafted_tokens;
  accepted += output.usage.accepted_tokens;
}

int UsageSum::completion_tokens() const { return std::accumulate(completion.begin(), completion.end(), 0); }

int UsageSum::cached_tokens(int n) const {
  int sum = 0;
  for (size_t i = 0; i < cached.size(); i += static_cast<size_t>(n)) sum += cached[i];
  return sum;
}

Json usage_json(const ResponseHead& head, const UsageSum& sum, std::optional<int> reasoning_tokens) {
  const int completion = sum.completion_tokens();
  Json usage = {{"prompt_tokens", head.prompt_tokens},
                {"completion_tokens", completion},
                {"total_tokens", head.prompt_tokens + completion},
                {"prompt_tokens_details", {{"cached_tokens", sum.cached_tokens(head.n())}}}};
  if (reasoning_tokens) usage["completion_tokens_details"] = {{"reasoning_tokens", *reasoning_tokens}};
  if (sum.drafted > 0) usage["speculative"] = {{"drafted_tokens", sum.drafted}, {"accepted_tokens", sum.accepted}};
  return usage;
}

}  // namespace quire
