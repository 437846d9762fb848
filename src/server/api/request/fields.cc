#include "server/api/request/fields.h"

#include <algorithm>
#include <iterator>

#include "server/api/definition.h"
#include "server/api/request/field_readers.h"
#include "server/api/request/structured_output.h"
#include "server/api/request/tools.h"

namespace quire {
namespace {

// Next to the rows of kSamplingParameters.
constexpr ApiField kSamplingRows[] = {
    {"dry_sequence_breakers", read_breakers,
     R"({"type": "array", "maxItems": 64, "items": {"type": "string", "minLength": 1, "maxLength": 256}})",
     "texts that DRY's repetitions do not extend over; default: a line end, a colon, a quotation mark and an asterisk"},
    {"repeat_penalty", &sampling_parameter("repetition_penalty"), {}, "llama.cpp's repetition_penalty"},
    {"logit_bias", read_logit_bias, R"({"anyOf": [{"type": "object", "propertyNames": {"pattern": "^[0-9]+$"},
         "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}},
       {"type": "array", "items": {"type": "array", "minItems": 2, "maxItems": 2, "prefixItems": [{"$ref": "#/components/schemas/TokenId"},
         {"anyOf": [{"const": false}, {"type": "number", "minimum": -100, "maximum": 100}]}]}}]})",
     "maps token ids to values added to their logits; llama.cpp's pairs, too, where false bans the token"},
    {"allowed_token_ids", read_allowed_token_ids,
     R"({"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/TokenId"}})",
     "the answer consists of these tokens only"},
    {"bad_words", read_bad_words,
     R"({"type": "array", "maxItems": 1024, "items": {"type": "string", "minLength": 1, "maxLength": 4096}})",
     "never generated as the tokens that spell them, with or without a leading space; 64 KiB in total"},
    {"seed", read_seed, R"({"type": "integer", "minimum": -9223372036854775808, "maximum": 18446744073709551615})",
     "the same seed gives the same answer; the server draws one by default and for -1"},
    {"stop_token_ids", read_stop_token_ids, schemas::kTokenIds},
    {"structured_outputs", read_structured_outputs,
     R"({"type": "object", "properties": {"json": {}, "json_object": {"type": ["boolean", "null"]},
         "regex": {"type": ["string", "null"]}, "choice": {"type": ["array", "null"], "items": {"type": "string"}},
         "grammar": {"type": ["string", "null"]}}})",
     "one of json (a schema), json_object, regex, choice and grammar (GBNF)"},
    {"guided_json", read_guided_json, schemas::kSchema, "structured_outputs.json"},
    {"guided_regex", read_guided_regex, schemas::kText, "structured_outputs.regex"},
    {"guided_choice", read_guided_choice,
     R"({"type": "array", "minItems": 1, "maxItems": 4096, "items": {"type": "string", "minLength": 1}})",
     "structured_outputs.choice"},
    {"guided_grammar", read_grammar, schemas::kText, "structured_outputs.grammar"},
    {"grammar", read_grammar, schemas::kText, "GBNF, llama.cpp's notation"},
    {"regex", read_guided_regex, schemas::kText, "SGLang's: structured_outputs.regex"},
    {"ebnf", read_grammar, schemas::kText, "SGLang's: structured_outputs.grammar"},
    {"json_schema", read_schema, schemas::kSchema, "llama.cpp's: a schema that the answer matches"},
};

constexpr ApiField kEngineRows[] = {
    {"priority", &ApiRequest::priority, {}, "lower runs earlier; 0 by default"},
    {"timeout", read_timeout, R"({"type": "number", "minimum": 0.001, "maximum": 1000000})",
     "seconds for the whole answer, including waiting; at most the server's own"},
    {"cache_salt", read_cache_salt, R"({"type": "string", "minLength": 1, "maxLength": 256})",
     "prompts share cached prefixes only with prompts of the same salt"},
};

constexpr ApiField kCallRows[] = {
    {"tool_choice", read_tool_choice, R"({"$ref": "#/components/schemas/ToolChoice"})"},
    {"parallel_tool_calls", read_parallel_tool_calls, schemas::kSwitch, "false: only the first call is answered"},
    {"include_reasoning", &ApiRequest::include_reasoning, {}, "false: reasoning is left out"},
    {"max_reasoning_tokens", read_max_reasoning_tokens, R"({"type": "integer", "minimum": 0, "maximum": 2147483647})",
     "a longer thought is closed, and the answer follows"},
    {"thinking_token_budget", read_max_reasoning_tokens, R"({"type": "integer", "minimum": 0, "maximum": 2147483647})",
     "the same, vLLM's name"},
    {"enable_thinking", read_enable_thinking, schemas::kSwitch, "a variable for the chat template"},
};

constexpr RefusedField kRefusedSampling[] = {
    {"guided_whitespace_pattern", "[]", "white space between JSON tokens is fixed"},
    {"use_beam_search", "[false]", ""},
    {"logits_processors", "[[]]", ""},
    {"vllm_xargs", "[{}]", ""},
    {"audio", "[]", "answers are text"},
    {"modalities", R"([["text"]])", "answers are text"},
    {"web_search_options", "[]", ""},
    {"top_a", "[0]", ""},
    {"tfs_z", "[1]", ""},
    {"min_keep", "[0]", ""},
};

constexpr RefusedField kRefusedWrappers[] = {
    {"extra_body", "[{}]", "it is an argument of OpenAI's Python client; send its members as parameters"},
    {"sampling_params", "[{}]", "send its members as parameters"},
    {"parameters", "[{}]", "send its members as parameters"},
};

template <class Row>
std::vector<Row> with_shared(std::vector<Row> own, std::initializer_list<std::span<const Row>> shared) {
  for (const std::span<const Row> rows : shared) own.insert(own.end(), rows.begin(), rows.end());
  return own;
}

}  // namespace

const ApiField kModelField = {"model", read_model, R"({"$ref": "#/components/schemas/ModelName"})",
                              "one of GET /v1/models; the first by default"};
const ApiField kParseSpecialField = {"parse_special", read_parse_special, schemas::kSwitch,
                                     "whether a text that spells a special token (<|im_end|>) is that token; default: "
                                     "true in prompts, false in messages"};
const ApiField kStreamField = {"stream", &ApiRequest::stream};
const ApiField kStreamOptionsField = {
    "stream_options", read_stream_options,
    R"({"type": "object", "properties": {"include_usage": {"type": ["boolean", "null"]},
         "continuous_usage_stats": {"type": ["boolean", "null"]},
         "include_obfuscation": {"type": ["boolean", "null"]}}})",
    "only for streams; nothing is obfuscated"};
const ApiField kTemplateKwargsField = {"chat_template_kwargs", read_template_kwargs, R"({"type": "object"})",
                                       "variables for the chat template"};
const ApiField kMaxTokensField = {"max_tokens", read_max_tokens, schemas::kLimit,
                                  "-1: no limit; 0: only with prompt_logprobs or echo"};
const ApiField kPredictField = {"n_predict", read_max_tokens, schemas::kLimit, "llama.cpp's max_tokens"};
const ApiField kStopField = {"stop", read_stop, schemas::kStop, "64 KiB in total; an empty string: none"};
const ApiField kTruncatePromptField = {
    "truncate_prompt_tokens", read_truncate_prompt_tokens,
    R"({"anyOf": [{"const": -1}, {"type": "integer", "minimum": 1, "maximum": 2147483647}]})",
    "keep only the prompt's last tokens; -1: as many as fit"};
const ApiField kAddSpecialTokensField = {
    "add_special_tokens", &ApiRequest::add_special_tokens, {}, "add BOS and the like to texts; true by default"};
const ApiField kTopLogprobsField = {"top_logprobs", read_top_logprobs, schemas::kUpToLogprobs,
                                    "needs logprobs, in responses include: [\"message.output_text.logprobs\"]"};
const ApiField kStoreField = {"store", read_store, schemas::kSwitch, "nothing is stored"};

#define SAMPLERS R"(["penalties", "dry", "top_n_sigma", "temperature", "typ_p", "top_k", "top_p", "min_p", "xtc"])"
const std::string_view kSamplerOrder = SAMPLERS;
const RefusedField kSamplersField = {"samplers", "[[], " SAMPLERS "]", "the order of samplers is fixed"};
#undef SAMPLERS
const RefusedField kOwnTemplateField = {"chat_template", R"([""])", "start the server with --chat-template FILE"};
const RefusedField kThinkingField = {"thinking", R"([{"type": "disabled"}])",
                                     "set enable_thinking in chat_template_kwargs"};

std::span<const ApiField> sampling_fields() {
  static const std::vector<ApiField> all = [] {
    std::vector<ApiField> fields(std::begin(kSamplingRows), std::end(kSamplingRows));
    for (const SamplingParameter& parameter : kSamplingParameters) {
      if (parameter.name != "n") fields.push_back({parameter.name, &parameter});  // not all endpoints have it
    }
    return fields;
  }();
  return all;
}
std::span<const ApiField> engine_fields() { return kEngineRows; }
std::span<const ApiField> call_fields() { return kCallRows; }
std::span<const RefusedField> refused_sampling_fields() { return kRefusedSampling; }
std::span<const RefusedField> refused_wrappers() { return kRefusedWrappers; }

std::vector<ApiField> join(std::vector<ApiField> own, std::initializer_list<std::span<const ApiField>> shared) {
  return with_shared(std::move(own), shared);
}
std::vector<RefusedField> join(std::vector<RefusedField> own,
                               std::initializer_list<std::span<const RefusedField>> shared) {
  return with_shared(std::move(own), shared);
}

const ApiField* find_field(const ApiDefinition& api, std::string_view name) {
  const auto found = std::ranges::find(api.fields, name, &ApiField::name);
  return found == api.fields.end() ? nullptr : &*found;
}

bool constrains(std::string_view name, const ApiDefinition& api) {
  constexpr std::string_view kWords[] = {"grammar", "regex",  "ebnf",     "gbnf",     "lark",
                                         "schema",  "guided", "structur", "constrain"};
  constexpr std::string_view kNames[] = {"choice",         "choices",      "json",
                                         "jsonmode",       "jsonobject",   "responsemimetype",
                                         "responseformat", "outputformat", "outputtype"};
  if (!api.generates_text) return false;
  std::string plain;  // "responseSchema" and "response_schema" are one
  for (const char c : name) {
    if (c != '_' && c != '-' && c != '.') plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  }
  if (plain.ends_with("backend")) return false;  // which of several programs computes it
  const auto contained = [&](std::string_view word) { return plain.find(word) != plain.npos; };
  return std::ranges::any_of(kWords, contained) || std::ranges::find(kNames, plain) != std::end(kNames);
}

bool takes_object(const ApiField& field) {
  if (field.schema.empty()) return false;
  const Json schema = Json::parse(field.schema);
  const auto is_object = [](const Json& s) { return s.value("type", Json()) == "object"; };
  const auto is_other = [](const Json& s) { return s.contains("type") && s["type"] != "object"; };
  if (!schema.contains("anyOf")) return is_object(schema) || schema.value("$ref", "").ends_with("/OllamaOptions");
  return std::ranges::any_of(schema["anyOf"], is_object) && std::ranges::none_of(schema["anyOf"], is_other);
}

}  // namespace quire
