// The parameters of all APIs in one table, from which requests are read and /openapi.json is written: OpenAI's,
// Anthropic's, Ollama's, and the extensions of vLLM and llama.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "json/field.h"
#include "server/api/request.h"
#include "server/api/routes.h"

namespace quire {

// A request while it is read. Fields that depend on others wait here until all are read.
struct ApiDraft : ApiRequest {
  ApiLimits limits;
  std::optional<int> max_completion_tokens, best_of, top_logprobs;
  bool logprobs = false;  // of chats, responses and Ollama's: the switch
  bool has_prompt = false, has_messages = false;
  std::optional<bool> add_generation_prompt, add_special;
  bool raw = false;                         // Ollama's generate: the prompt is the model's, without a template
  std::optional<std::string> input_prefix;  // infill: before the prompt
  std::optional<std::vector<std::string>> allowed_tools;            // names
  std::vector<std::pair<std::string, std::string>> tools_left_out;  // names and types of those that cannot be run here
};

using ReadField = void (*)(ApiDraft& draft, const JsonField& field);

struct ApiField {
  std::string_view name;
  uint32_t apis;  // bits of Api; the other APIs refuse the field. A name can have several rows.
  std::variant<const SamplingParameter*, bool ApiRequest::*, int Request::*, ReadField> read;
  std::string_view schema = {};  // JSON Schema of a ReadField's values
  // What OpenAI's and vLLM's documentation do not say; may be empty. Of a sampling parameter: its own words if empty.
  std::string_view about = {};
};
// Rows of their own, then one for each of kSamplingParameters that has none.
std::span<const ApiField> api_fields();
bool is_of(const ApiField& field, Api api);
bool takes_object(const ApiField& field);  // and nothing of another type
bool is_required(const ApiField& field, Api api);

// Reads a member of the body, or of an object in it that has parameters of its own. Throws ApiError and JsonError.
void read_parameter(ApiDraft& draft, Api api, std::string_view name, const JsonField& value);

// A parameter that would change the answer and that Quire does not support: refused, unless its value means "no".
struct RefusedField {
  std::string_view name;
  uint32_t apis;
  std::string_view neutral;  // accepted values besides null: a JSON array
  std::string_view advice;   // what to do instead; may be empty
};
std::span<const RefusedField> refused_fields();

// The order in which samplers act, as a JSON array of llama.cpp's names. Clients may repeat it, but choose no other.
extern const std::string_view kSamplerOrder;

// Whether a parameter that nobody here knows sounds as if it limited what the answer may be, as those of other engines
// do: dropping it would make answers wrong.
bool constrains(std::string_view name, Api api);

constexpr uint32_t bits(Api api) { return static_cast<uint32_t>(api); }

}  // namespace quire
