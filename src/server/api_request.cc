#include "server/api_request.h"

#include <algorithm>
#include <type_traits>

#include "server/api_error.h"
#include "server/api_fields.h"
#include "server/json_fields.h"

namespace quire {
namespace {

constexpr int kCompletionMaxTokens = 16;  // OpenAI's default of /v1/completions

std::string_view path(Api api) { return api == Api::kChat ? "/v1/chat/completions" : "/v1/completions"; }
Api other(Api api) { return api == Api::kChat ? Api::kCompletion : Api::kChat; }

template <class Row>
const Row* find_row(std::span<const Row> rows, std::string_view name) {
  const auto found = std::ranges::find(rows, name, &Row::name);
  return found == rows.end() ? nullptr : &*found;
}

void read_field(ApiDraft& draft, const ApiField& field, const Json& value) {
  if (!(field.apis & static_cast<uint8_t>(draft.api))) {
    throw bad_request(field.name, "is a parameter of {}, not of {}", path(other(draft.api)), path(draft.api));
  }
  std::visit(
      [&](auto read) {
        using Read = decltype(read);
        if constexpr (std::is_same_v<Read, ReadField>) {
          read(draft, value, field.name);
        } else if constexpr (std::is_same_v<Read, float SamplingParams::*>) {
          draft.sampling.*read = static_cast<float>(read_number(value, field.name, field.low, field.high));
        } else if constexpr (std::is_same_v<Read, int SamplingParams::*>) {
          draft.sampling.*read = static_cast<int>(
              read_integer(value, field.name, static_cast<int64_t>(field.low), static_cast<int64_t>(field.high)));
        } else if constexpr (std::is_same_v<Read, bool SamplingParams::*>) {
          draft.sampling.*read = read_bool(value, field.name);
        } else {
          draft.*read = read_bool(value, field.name);
        }
      },
      field.read);
}

void refuse(const RefusedField& field, const Json& value) {
  for (const Json& neutral : Json::parse(field.neutral)) {
    if (value == neutral) return;
  }
  throw bad_request(field.name, "is not supported{}{}", field.advice.empty() ? "" : ": ", field.advice);
}

// What depends on more than one field.
void settle(ApiDraft& draft) {
  SamplingParams& sampling = draft.sampling;
  if (draft.model.empty() && !draft.limits.models.empty()) draft.model = draft.limits.models.front();
  if (draft.max_completion_tokens) sampling.max_tokens = draft.max_completion_tokens;
  if (draft.api == Api::kCompletion && !sampling.max_tokens) sampling.max_tokens = kCompletionMaxTokens;
  if (sampling.max_tokens && sampling.min_tokens > *sampling.max_tokens) {
    throw bad_request("min_tokens", "{} is above max_tokens, {}", sampling.min_tokens, *sampling.max_tokens);
  }
  if (draft.best_of && *draft.best_of != sampling.n) {
    if (*draft.best_of < sampling.n) throw bad_request("best_of", "{} is below n, {}", *draft.best_of, sampling.n);
    throw bad_request("best_of", "{} is not supported: only best_of equal to n, {}", *draft.best_of, sampling.n);
  }
  if (draft.has_stream_options && !draft.stream) {
    throw bad_request("stream_options", "is allowed only with stream: true");
  }
  if (draft.api == Api::kChat) {
    if (!draft.has_messages) throw bad_request("messages", "is required");
    if (draft.top_logprobs.value_or(0) > 0 && !draft.logprobs) {
      throw bad_request("top_logprobs", "needs logprobs: true");
    }
    if (draft.logprobs) sampling.logprobs = draft.top_logprobs.value_or(0);
    if (draft.chat.continue_final_message && draft.add_generation_prompt.value_or(false)) {
      throw bad_request("continue_final_message", "excludes add_generation_prompt: true");
    }
    draft.chat.add_generation_prompt = draft.add_generation_prompt.value_or(!draft.chat.continue_final_message);
  } else {
    if (!draft.has_prompt) throw bad_request("prompt", "is required");
    if (draft.echo && sampling.logprobs) {
      throw bad_request("echo", "with logprobs is not supported: only the answer's tokens have log-probabilities");
    }
  }
}

}  // namespace

ApiRequest parse_api_request(Api api, std::string_view body, const ApiLimits& limits) {
  const Json json = parse_bounded_json(body);
  if (!json.is_object()) throw bad_request({}, "the body must be a JSON object, found {}", describe(json));
  ApiDraft draft;
  draft.api = api;
  draft.limits = limits;
  for (const auto& [name, value] : json.items()) {
    if (value.is_null()) continue;  // as if it were not there
    if (const ApiField* field = find_row(api_fields(), name)) {
      read_field(draft, *field, value);
    } else if (const RefusedField* refused = find_row(refused_fields(), name)) {
      refuse(*refused, value);
    } else {
      draft.without_effect.push_back(name);
    }
  }
  settle(draft);
  return std::move(static_cast<ApiRequest&>(draft));
}

}  // namespace quire
