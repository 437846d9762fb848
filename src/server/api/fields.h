// The parameters of the OpenAI API, of vLLM's and llama.cpp's extensions and of Anthropic's messages: one table, from
// which requests are read and /openapi.json is written.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "json/field.h"
#include "server/api/request.h"

namespace quire {

struct ApiInfo {
  Api api;
  std::string_view path, summary;
};
std::span<const ApiInfo> api_list();
const ApiInfo& api_info(Api api);

// A request while it is read: fields whose meaning depends on others wait here for all to be there.
struct ApiDraft : ApiRequest {
  ApiLimits limits;
  std::optional<int> max_completion_tokens, best_of, top_logprobs;
  bool logprobs = false;  // chat's switch
  bool has_stream_options = false, has_prompt = false, has_messages = false;
  std::optional<bool> add_generation_prompt;
};

using ReadField = void (*)(ApiDraft& draft, const JsonField& field);

struct ApiField {
  std::string_view name;
  uint8_t apis;  // of Api's bits; the other APIs refuse the field. A name can have several rows.
  std::variant<float SamplingParams::*, int SamplingParams::*, bool SamplingParams::*, bool ApiRequest::*,
               int ApiRequest::*, ReadField>
      read;
  double low = 0, high = 0;      // of numbers
  std::string_view schema = {};  // JSON Schema of a ReadField's values
  std::string_view about = {};   // beyond what OpenAI's and vLLM's documentation say; may be empty
};
std::span<const ApiField> api_fields();
bool is_of(const ApiField& field, Api api);
bool is_required(const ApiField& field, Api api);

// Would change the answer, and Quire does not do it: refused, except for the values that mean "no".
struct RefusedField {
  std::string_view name;
  uint8_t apis;
  std::string_view neutral;  // JSON values beside null, as an array
  std::string_view advice;   // what to do instead; may be empty
};
std::span<const RefusedField> refused_fields();

// What schemas of the table refer to, as "#/components/schemas/NAME".
Json schema_components(const ApiLimits& limits);

// chat: roles, contents and tool calls checked, contents joined to strings.
void read_messages(ApiDraft& draft, const JsonField& field);
// Anthropic's messages and system prompt, and the items of /v1/responses: text alone, as a chat.
void read_text_messages(ApiDraft& draft, const JsonField& field);
void read_system(ApiDraft& draft, const JsonField& field);
void read_items(ApiDraft& draft, const JsonField& field);
// A text, texts, token ids, or lists of token ids.
void read_prompt(ApiDraft& draft, const JsonField& field);
void read_one_text(ApiDraft& draft, const JsonField& field);
TokenIds read_token_ids(const JsonField& field, int vocab_size, size_t at_most);

}  // namespace quire
