#include "server/api/request/bounds.h"

#include <algorithm>

#include "server/api/definition.h"
#include "server/api/exchange.h"

namespace quire {
namespace {

constexpr size_t kMaxParameterBytes = 16 << 20;
constexpr int64_t kLogprobBytes = 80, kTokenIdBytes = 8;  // as JSON
// In one step of a stream: an eighth of the default --stream-buffer, so that a client that keeps reading is never too
// slow.
constexpr int64_t kMaxStepLogprobs = 16'384;

// Log-probabilities returned with each token.
int64_t per_token(std::optional<int> logprobs) { return logprobs ? *logprobs + 1 : 0; }

int64_t prompt_extra_bytes(const ResponseHead& head, std::span<const Request> requests) {
  const int64_t token_bytes = per_token(head.request.sampling.prompt_logprobs) * kLogprobBytes +
                              (head.request.return_token_ids ? kTokenIdBytes : 0);
  int64_t bytes = 0;
  for (const Request& request : requests) bytes += static_cast<int64_t>(request.prompt.size()) * token_bytes;
  for (const std::string& text : head.echo) bytes += static_cast<int64_t>(text.size());
  return bytes * (head.request.api->repeats_prompt ? head.n() : 1);
}

}  // namespace

void bound_parameters(const SamplingParams& sampling, int choices) {
  size_t bytes = sampling.logit_bias.size() * sizeof(sampling.logit_bias[0]) +
                 (sampling.allowed_token_ids.size() + sampling.stop_token_ids.size()) * sizeof(TokenId);
  for (const std::string& text : sampling.stop) bytes += text.size();
  if (bytes * static_cast<size_t>(choices) <= kMaxParameterBytes) return;
  throw bad_request(choices == sampling.n ? "n" : "prompt",
                    "logit_bias, token ids and stop strings take {} bytes for each of {} answers; at most {} bytes "
                    "are allowed in total",
                    bytes, choices, kMaxParameterBytes);
}

void bound_response(const ResponseHead& head, int max_model_len, int64_t most_bytes, std::span<Request> requests) {
  const ApiRequest& asked = head.request;
  const int64_t logprobs = per_token(asked.sampling.logprobs);
  if (asked.stream && head.choices() * logprobs > kMaxStepLogprobs) {
    throw bad_request("logprobs", "{} per token of {} choices exceed the {} that one step of a stream may have",
                      logprobs, head.choices(), kMaxStepLogprobs);
  }
  const int64_t of_prompts = prompt_extra_bytes(head, requests);
  int64_t of_answers = 0;
  if (logprobs > 0 && !asked.stream) {  // a stream does not keep them
    const int64_t fitting = (most_bytes - of_prompts) / (head.choices() * logprobs * kLogprobBytes);
    for (Request& request : requests) {
      const int64_t room = max_model_len - static_cast<int64_t>(request.prompt.size());
      std::optional<int>& most = request.sampling.max_tokens;
      if (!most && fitting > 0 && fitting < room) most = static_cast<int>(fitting);
      of_answers += head.n() * std::min<int64_t>(most.value_or(room), room) * logprobs * kLogprobBytes;
    }
  }
  if (of_prompts + of_answers <= most_bytes) return;
  const char* field = asked.sampling.logprobs ? "logprobs"
                      : asked.prompt_logprobs ? "prompt_logprobs"
                      : asked.echo            ? "echo"
                                              : "return_token_ids";
  throw bad_request(field,
                    "log-probabilities, token ids and echo would take about {} bytes for the prompts and {} for the "
                    "answers; one response may have {}; ask for less in one request",
                    of_prompts, of_answers, most_bytes);
}

size_t prompt_output_bytes(std::span<const Request> requests, int embedding_size) {
  size_t bytes = 0;
  for (const Request& request : requests) {
    if (request.pooling != Pooling::kNone) bytes += static_cast<size_t>(embedding_size) * sizeof(float);
    if (const auto tops = request.sampling.prompt_logprobs) {
      bytes += request.prompt.size() * output_token_bytes(static_cast<size_t>(*tops));
    }
  }
  return bytes;
}

}  // namespace quire
