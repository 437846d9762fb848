// From a request's body to what the engine is to do.
#include <utility>

#include "server/api_shapes.h"
#include "server/service.h"

namespace quire {
namespace {

// What a prompt's log-probabilities may be, tokens times figures: some 20 MB as JSON.
constexpr int64_t kMaxPromptFigures = 250'000;

std::string_view id_prefix(Api api) {
  switch (api) {
    case Api::kChat:
      return "chatcmpl-";
    case Api::kResponse:
      return "resp_";
    case Api::kMessage:
      return "msg_";
    default:
      return "cmpl-";
  }
}

std::string_view prompt_field(const ApiRequest& request) {
  if (request.api == Api::kResponse || request.api == Api::kEmbedding) return "input";
  return request.prompts.empty() ? "messages" : "prompt";
}

// 0.7f as 0.7 and not as 0.699999988079071.
double as_written(float number) { return std::stod(fmt::format("{}", number)); }

// What /v1/responses says again in every response.
Json repeated_fields(const ApiRequest& request) {
  const SamplingParams& sampling = request.sampling;
  const bool instructed = request.instructions.has_value();
  return {{"instructions", instructed ? Json(*request.instructions) : Json()},
          {"max_output_tokens", sampling.max_tokens ? Json(*sampling.max_tokens) : Json()},
          {"temperature", as_written(sampling.temperature)},
          {"top_p", as_written(sampling.top_p)}};
}

ResponseHead head_of(const ApiRequest& request, int choices) {
  return {.api = request.api,
          .stream = request.stream,
          .id = fmt::format("{}{:016x}{:016x}", id_prefix(request.api), random_u64(), random_u64()),
          .model = request.model,
          .created = unix_seconds(),
          .choices = choices,
          .n = request.sampling.n,
          .prompt_tokens = 0,
          .echo = {},
          .prompts = {},
          .logprobs = request.sampling.logprobs.has_value(),
          .prompt_logprobs = request.prompt_logprobs,
          .tokens_as_ids = request.return_tokens_as_token_ids,
          .token_ids = request.return_token_ids,
          .include_usage = request.include_usage,
          .continuous_usage_stats = request.continuous_usage_stats,
          .base64 = request.base64,
          .repeated = request.api == Api::kResponse ? repeated_fields(request) : Json()};
}

Job ready_job(const Json& body) {
  return {.answer = ready_answer(dump(body)), .stream = false, .choices = 0, .requests = {}, .places = {}};
}

}  // namespace

Job Service::prepare(Api api, std::string_view body) {
  try {
    const ApiRequest request = parse_api_request(api, body, limits());
    log_once(request.without_effect);
    if (api == Api::kTokenize) return tokenization(request);
    if (api == Api::kDetokenize) return detokenization(request);
    return generation(request);
  } catch (...) {
    throw current_api_error();
  }
}

Places Service::admit(int choices) {
  if (admission_->enter(choices)) return {admission_, choices};
  metrics_->request_rejected();
  ApiError full(429,
                fmt::format("the queue is full: at most {} answers run and {} wait; try again later",
                            options_.max_running, options_.max_queue),
                "rate_limit_error", {}, "queue_full");
  full.retry_after = 1;
  throw full;
}

Job Service::generation(const ApiRequest& request) {
  const size_t prompts = request.prompts.empty() ? 1 : request.prompts.size();
  const int choices = static_cast<int>(prompts) * request.sampling.n;
  Places places = admit(choices);  // before the prompt is tokenized: what the queue refuses must cost little
  ResponseHead head = head_of(request, choices);
  Job job{.answer = nullptr, .stream = request.stream, .choices = choices, .requests = {}, .places = std::move(places)};
  for (size_t i = 0; i < prompts; ++i) {
    Request& made = job.requests.emplace_back();
    made.prompt = fitting_prompt(request, i, head.echo);
    made.sampling = request.sampling;
    if (!request.has_seed) made.sampling.seed = random_u64();
    made.cache_salt = request.cache_salt;
    made.priority = request.priority;
    made.timeout = request.timeout;
    made.pooling = request.pooling;
    head.prompt_tokens += static_cast<int>(made.prompt.size());
    if (request.return_token_ids) head.prompts.push_back(made.prompt);
  }
  job.answer =
      make_answer(std::move(head), [&completer = completer_](TokenId id) { return completer.token_bytes(id); });
  return job;
}

TokenIds Service::encode(const ApiRequest& request, size_t index) const {
  if (request.prompts.empty()) return completer_.encode_chat(request.chat);
  const Prompt& prompt = request.prompts[index];
  if (const auto* ids = std::get_if<TokenIds>(&prompt)) return *ids;
  return completer_.encode(std::get<std::string>(prompt), request.add_special_tokens);
}

TokenIds Service::fitting_prompt(const ApiRequest& request, size_t index, std::vector<std::string>& echo) const {
  const std::string_view field = prompt_field(request);
  TokenIds ids = encode(request, index);
  bool truncated = false;
  if (const auto keep = request.truncate_prompt_tokens; keep && std::cmp_greater(ids.size(), *keep)) {
    ids.erase(ids.begin(), ids.end() - *keep);
    truncated = true;
  }
  if (ids.empty()) throw bad_request(field, "is empty: the model needs at least one token to go on from");

  const int most = completer_.info().max_model_len;
  const bool answers = request.pooling == Pooling::kNone && request.sampling.max_tokens != 0;
  if (std::cmp_greater(ids.size() + (answers ? 1 : 0), most)) {
    ApiError error =
        bad_request(field, "has {} tokens; with the answer at most {} are possible here", ids.size(), most);
    error.code = "context_length_exceeded";
    throw error;
  }
  if (const auto figures = request.sampling.prompt_logprobs;
      figures && std::cmp_greater(ids.size() * (static_cast<size_t>(*figures) + 1), kMaxPromptFigures)) {
    throw bad_request(request.prompt_logprobs ? "prompt_logprobs" : "logprobs",
                      "{} for each of {} tokens are more than the {} figures that one prompt may have", *figures,
                      ids.size(), kMaxPromptFigures);
  }
  if (request.echo) {
    const auto* text = std::get_if<std::string>(&request.prompts[index]);
    echo.push_back(text && !truncated ? *text : completer_.decode(ids));
  }
  return ids;
}

Job Service::tokenization(const ApiRequest& request) const {
  const TokenIds ids = encode(request, 0);
  Json strings;
  if (request.return_token_strs) {
    strings = Json::array();
    for (const TokenId id : ids) strings.push_back(completer_.token_text(id));
  }
  return ready_job({{"count", ids.size()},
                    {"max_model_len", completer_.info().max_model_len},
                    {"tokens", ids},
                    {"token_strs", std::move(strings)}});
}

Job Service::detokenization(const ApiRequest& request) const {
  return ready_job({{"prompt", completer_.decode(std::get<TokenIds>(request.prompts.front()))}});
}

}  // namespace quire
