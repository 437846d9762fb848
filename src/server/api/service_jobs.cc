// From a request's body to what the engine is to do.
#include <algorithm>
#include <utility>

#include "server/api/answer_parts.h"
#include "server/api/service.h"

namespace quire {
namespace {

// What comes back of one request beside its answers' texts, in log-probabilities: some 20 MB as JSON, and five times as
// much while it is written. Token ids and echoed text count by their share of that.
constexpr int64_t kMaxFigures = 250'000, kIdsPerFigure = 10, kEchoBytesPerFigure = 80;
constexpr size_t kMaxParameterBytes = 16 << 20;
// Of one step of a stream: an eighth of the default --stream-buffer, so that whoever reads at once is never too slow.
constexpr int64_t kMaxStepFigures = 16'384;

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

// Each choice has its own copy of what the request says about sampling.
void bound_parameters(const SamplingParams& sampling, int choices) {
  size_t bytes = sampling.logit_bias.size() * sizeof(sampling.logit_bias[0]) +
                 (sampling.allowed_token_ids.size() + sampling.stop_token_ids.size()) * sizeof(TokenId);
  for (const std::string& text : sampling.stop) bytes += text.size();
  if (bytes * static_cast<size_t>(choices) <= kMaxParameterBytes) return;
  throw bad_request(choices == sampling.n ? "n" : "prompt",
                    "logit_bias, token ids and stop strings of {} bytes for each of {} answers: at most {} bytes are "
                    "allowed in all",
                    bytes, choices, kMaxParameterBytes);
}

int64_t figures_per_token(std::optional<int> logprobs) { return logprobs ? *logprobs + 1 : 0; }

// Of the prompts' log-probabilities, token ids and echo; every choice of a completion repeats its prompt's.
int64_t prompt_figures(const ApiRequest& request, const std::vector<Request>& requests, const ResponseHead& head) {
  int64_t figures = 0;
  for (const Request& made : requests) {
    const auto tokens = static_cast<int64_t>(made.prompt.size());
    figures += tokens * figures_per_token(request.sampling.prompt_logprobs);
    if (request.return_token_ids) figures += tokens / kIdsPerFigure;
  }
  for (const std::string& text : head.echo) figures += static_cast<int64_t>(text.size()) / kEchoBytesPerFigure;
  return figures * (request.api == Api::kCompletion ? request.sampling.n : 1);
}

// Holds the request to the figures that one may have. An answer without max_tokens ends where they do.
void bound_figures(const ApiRequest& request, const ResponseHead& head, int max_model_len,
                   std::vector<Request>& requests) {
  const int64_t n = request.sampling.n, per_token = figures_per_token(request.sampling.logprobs);
  if (request.stream && head.choices * per_token > kMaxStepFigures) {
    throw bad_request("logprobs", "{} for each token of {} choices are more than the {} of one step of a stream",
                      per_token, head.choices, kMaxStepFigures);
  }
  const int64_t of_prompts = prompt_figures(request, requests, head);
  int64_t of_answers = 0;
  if (per_token > 0 && !request.stream) {  // those of a stream leave at once
    const int64_t fitting = (kMaxFigures - of_prompts) / (head.choices * per_token);
    for (Request& made : requests) {
      const int64_t room = max_model_len - static_cast<int64_t>(made.prompt.size());
      std::optional<int>& most = made.sampling.max_tokens;
      if (!most && fitting > 0 && fitting < room) most = static_cast<int>(fitting);
      of_answers += n * std::min<int64_t>(most.value_or(room), room) * per_token;
    }
  }
  if (of_prompts + of_answers <= kMaxFigures) return;
  const char* field = of_answers > of_prompts || request.sampling.logprobs ? "logprobs"
                      : request.prompt_logprobs                            ? "prompt_logprobs"
                      : request.echo                                       ? "echo"
                                                                           : "return_token_ids";
  throw bad_request(field,
                    "the prompts' log-probabilities, token ids and echo count as {}, those of the answers as {}; one "
                    "request may have {} together: ask for less at once",
                    of_prompts, of_answers, kMaxFigures);
}

// What the engine gives of the prompts at once, beside the answers: log-probabilities or vectors.
size_t prompt_bytes(const std::vector<Request>& requests, int hidden) {
  size_t bytes = 0;
  for (const Request& made : requests) {
    if (made.pooling != Pooling::kNone) bytes += static_cast<size_t>(hidden) * sizeof(float);
    if (const auto tops = made.sampling.prompt_logprobs)
      bytes += made.prompt.size() * output_token_bytes(static_cast<size_t>(*tops));
  }
  return bytes;
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
  bound_parameters(request.sampling, choices);
  Places places = admit(choices);  // before the prompt is tokenized: what the queue refuses must cost little
  ResponseHead head = head_of(request, choices);
  SamplingParams sampling = request.sampling;
  const std::vector<std::string> bad_words = std::exchange(sampling.bad_words, {});
  const TokenRuns banned_runs = bad_words.empty() ? nullptr : completer_.spellings(bad_words);  // once for all prompts
  Job job{.stream = request.stream, .choices = choices, .places = std::move(places)};
  for (size_t i = 0; i < prompts; ++i) {
    Request& made = job.requests.emplace_back();
    made.prompt = fitting_prompt(request, i, head.echo);
    made.sampling = sampling;
    made.banned_runs = banned_runs;
    if (!request.has_seed) made.sampling.seed = random_u64();
    made.cache_salt = request.cache_salt;
    made.priority = request.priority;
    made.timeout = request.timeout;
    made.pooling = request.pooling;
    head.prompt_tokens += static_cast<int>(made.prompt.size());
    if (request.return_token_ids) head.prompts.push_back(made.prompt);
  }
  bound_figures(request, head, completer_.info().max_model_len, job.requests);
  job.prompt_bytes = prompt_bytes(job.requests, completer_.info().hidden);
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
  if (request.echo) {
    const auto* text = std::get_if<std::string>(&request.prompts[index]);
    echo.push_back(text && !truncated ? *text : completer_.decode(ids));
  }
  return ids;
}

Job Service::tokenization(const ApiRequest& request) const {
  const TokenIds ids = encode(request, 0);
  // Written by hand: a body may hold millions of tokens, and a Json of their strings takes ten times their bytes.
  std::string body = fmt::format(R"({{"count":{},"max_model_len":{},"tokens":[{}],"token_strs":)", ids.size(),
                                 completer_.info().max_model_len, fmt::join(ids, ","));
  if (request.return_token_strs) {
    body += '[';
    for (const TokenId id : ids) body += dump(completer_.token_text(id)) + ',';
    if (!ids.empty()) body.pop_back();
    body += ']';
  } else {
    body += "null";
  }
  body += '}';
  return {.answer = ready_answer(std::move(body))};
}

Job Service::detokenization(const ApiRequest& request) const {
  return {.answer = ready_answer(dump({{"prompt", completer_.decode(std::get<TokenIds>(request.prompts.front()))}}))};
}

}  // namespace quire
