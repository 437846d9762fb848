// The parameters of the OpenAI API and of vLLM's and llama.cpp's extensions: one table, from which requests are read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "server/api_request.h"

namespace quire {

// A request while it is read: fields whose meaning depends on others wait here for all to be there.
struct ApiDraft : ApiRequest {
  ApiLimits limits;
  std::optional<int> max_completion_tokens, best_of, top_logprobs;
  bool logprobs = false;  // chat's switch
  bool has_stream_options = false, has_prompt = false, has_messages = false;
  std::optional<bool> add_generation_prompt;
};

using ReadField = void (*)(ApiDraft& draft, const Json& value, std::string_view name);

struct ApiField {
  std::string_view name;
  uint8_t apis;  // of Api's bits; the other API refuses the field
  std::variant<float SamplingParams::*, int SamplingParams::*, bool SamplingParams::*, bool ApiRequest::*, ReadField>
      read;
  double low = 0, high = 0;  // of numbers
};
std::span<const ApiField> api_fields();

// Would change the answer, and Quire does not do it: refused, except for the values that mean "no".
struct RefusedField {
  std::string_view name;
  std::string_view neutral;  // JSON values beside null, as an array
  std::string_view advice;   // what to do instead; may be empty
};
std::span<const RefusedField> refused_fields();

// chat: roles, contents and tool calls checked, contents joined to strings.
void read_messages(ApiDraft& draft, const Json& value, std::string_view name);
// completion: a text, texts, token ids, or lists of token ids.
void read_prompt(ApiDraft& draft, const Json& value, std::string_view name);

}  // namespace quire
