// The parameters of requests as rows, from which bodies are read and /openapi.json is written. Endpoints have rows of their
// own (server/endpoints); those that several share are here.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "json/field.h"
#include "server/api/request/request.h"

namespace quire {

// A request while it is read. Fields that depend on others wait here until all are read.
struct ApiDraft : ApiRequest {
  ApiLimits limits;
  std::optional<int> max_completion_tokens, best_of, top_logprobs;
  bool logprobs = false;  // the switch that chats, responses and Ollama's requests have
  bool has_prompt = false, has_messages = false;
  std::vector<std::string_view> given;  // names of the fields that were read
  std::optional<bool> add_generation_prompt, add_special;
  bool raw = false;                         // Ollama's generate: the prompt is the model's, without a template
  std::optional<std::string> input_prefix;  // infill: before the prompt
  std::optional<std::vector<std::string>> allowed_tools;            // names
  std::vector<std::pair<std::string, std::string>> tools_left_out;  // names and types of those that cannot be run here
};

using ReadField = void (*)(ApiDraft& draft, const JsonField& field);

struct ApiField {
  std::string_view name;
  std::variant<const SamplingParameter*, bool ApiRequest::*, int Request::*, ReadField> read;
  std::string_view schema = {};  // JSON Schema of a ReadField's values
  // What OpenAI's and vLLM's documentation do not say; may be empty. Of a sampling parameter: its own words if empty.
  std::string_view about = {};
};
bool takes_object(const ApiField& field);  // and nothing of another type

// A parameter that would change the answer and that Quire does not support: refused, unless its value means "no".
struct RefusedField {
  std::string_view name;
  std::string_view neutral;  // accepted values besides null: a JSON array
  std::string_view advice;   // what to do instead; may be empty
};

// The endpoint's own fields first, then those that it shares with others.
std::vector<ApiField> join(std::vector<ApiField> own, std::initializer_list<std::span<const ApiField>> shared);
std::vector<RefusedField> join(std::vector<RefusedField> own,
                               std::initializer_list<std::span<const RefusedField>> shared);

// Fields that several endpoints have.
extern const ApiField kModelField, kParseSpecialField, kStreamField, kStreamOptionsField, kTemplateKwargsField,
    kMaxTokensField, kPredictField, kStopField, kTopLogprobsField, kTruncatePromptField, kAddSpecialTokensField,
    kStoreField;
std::span<const ApiField> sampling_fields();  // all of kSamplingParameters but n, and what limits the answer
std::span<const ApiField> engine_fields();    // priority, timeout, cache_salt
std::span<const ApiField> call_fields();      // calls of tools and reasoning, as OpenAI's chats and responses have them

extern const RefusedField kOwnTemplateField, kSamplersField, kThinkingField;
std::span<const RefusedField> refused_sampling_fields();
std::span<const RefusedField> refused_wrappers();  // objects that other clients unpack

// The order in which samplers act, as a JSON array of llama.cpp's names. Clients may repeat it, but choose no other.
extern const std::string_view kSamplerOrder;

// JSON Schemas of values that many fields have.
namespace schemas {
inline constexpr std::string_view
    kText = R"({"type": "string"})",
    kSwitch = R"({"type": "boolean"})", kLimit = R"({"type": "integer", "minimum": -1, "maximum": 2147483647})",
    kPositiveLimit = R"({"anyOf": [{"const": -1}, {"type": "integer", "minimum": 1, "maximum": 2147483647}]})",
    kPositive = R"({"type": "integer", "minimum": 1, "maximum": 2147483647})",
    kUpToLogprobs = R"({"type": "integer", "minimum": 0, "maximum": 1024})",
    kSchema = R"({"anyOf": [{"type": "object"}, {"type": "boolean"}, {"type": "string"}]})",
    kDocuments = R"({"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "maxItems": 2048, "items":
    {"anyOf": [{"type": "string"}, {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}]}}]})",
    kTokenIds = R"({"type": "array", "items": {"$ref": "#/components/schemas/TokenId"}})",
    kPrompts = R"({"$ref": "#/components/schemas/Prompts"})",
    kStop = R"({"anyOf": [{"type": "string", "maxLength": 4096},
    {"type": "array", "maxItems": 64, "items": {"type": "string", "minLength": 1, "maxLength": 4096}}]})";
static_assert(kMaxBadWords == 1024 && kMaxLogprobs == 1024 && kMaxStopStrings == 64 && kMaxStopBytes == 4096 &&
              kMaxChoices == 128 && kMaxBreakers == 64 && kMaxBreakerBytes == 256);
}  // namespace schemas

// The field of this name that an endpoint has; nullptr: none.
const ApiField* find_field(const ApiDefinition& api, std::string_view name);

// Reads a member of the body, or of an object in it that has parameters of its own. Throws ApiError and JsonError.
void read_parameter(ApiDraft& draft, const ApiDefinition& api, std::string_view name, const JsonField& value);

// Whether a parameter that nobody here knows sounds as if it limited what the answer may be, as those of other engines
// do: dropping it would make answers wrong.
bool constrains(std::string_view name, const ApiDefinition& api);

}  // namespace quire
