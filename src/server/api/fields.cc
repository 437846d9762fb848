#include "server/api/fields.h"

#include <algorithm>

#include "server/api/field_readers.h"
#include "server/api/prompts.h"
#include "server/api/structured_output.h"
#include "server/api/tools.h"
#include "server/endpoints/chat.h"
#include "server/endpoints/infill.h"
#include "server/endpoints/llama.h"
#include "server/endpoints/messages.h"
#include "server/endpoints/ollama.h"
#include "server/endpoints/responses.h"

namespace quire {
namespace {

constexpr uint32_t kChat = bits(Api::kChat), kCompletion = bits(Api::kCompletion),
                   kResponse = bits(Api::kResponse) | bits(Api::kCountInput), kMessage = bits(Api::kMessage),
                   kEmbedding = bits(Api::kEmbedding), kTokenize = bits(Api::kTokenize),
                   kDetokenize = bits(Api::kDetokenize), kCountTokens = bits(Api::kCountTokens),
                   kInfill = bits(Api::kInfill), kOllamaChat = bits(Api::kOllamaChat),
                   kOllamaGenerate = bits(Api::kOllamaGenerate), kOllamaEmbed = bits(Api::kOllamaEmbed),
                   kOllamaEmbeddings = bits(Api::kOllamaEmbeddings), kOllamaShow = bits(Api::kOllamaShow),
                   kOllamaOptions = bits(Api::kOllamaOptions), kRerank = bits(Api::kRerank), kScore = bits(Api::kScore),
                   kLlama = bits(Api::kLlamaCompletion), kTemplate = bits(Api::kApplyTemplate);
constexpr uint32_t kBoth = kChat | kCompletion, kMessageInput = kMessage | kCountTokens,
                   kBodies = kBoth | kResponse | kMessage | kInfill | kLlama,
                   kOllamaTexts = kOllamaChat | kOllamaGenerate, kOllamaVectors = kOllamaEmbed | kOllamaEmbeddings,
                   kScores = kRerank | kScore, kEngine = kBodies | kEmbedding | kScores | kOllamaTexts | kOllamaVectors,
                   kAll = kBodies | kEmbedding | kScores | kTokenize | kDetokenize | kCountTokens | kTemplate;
constexpr uint32_t kAnswers = kBodies | kOllamaTexts;
constexpr uint32_t kGenerate = kBodies | kOllamaOptions;  // requests to Ollama's API have these in `options`

#define REF(name) R"({"$ref": "#/components/schemas/)" name R"("})"
constexpr std::string_view
    kText = R"({"type": "string"})",
    kSwitch = R"({"type": "boolean"})", kLimit = R"({"type": "integer", "minimum": -1, "maximum": 2147483647})",
    kPositiveLimit = R"({"anyOf": [{"const": -1},
    {"type": "integer", "minimum": 1, "maximum": 2147483647}]})",
    kPositive = R"({"type": "integer", "minimum": 1, "maximum": 2147483647})",
    kUpToLogprobs = R"({"type": "integer", "minimum": 0, "maximum": 1024})",
    kSchema = R"({"anyOf": [{"type": "object"}, {"type": "boolean"}, {"type": "string"}]})",
    kDocuments = R"({"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "maxItems": 2048, "items":
    {"anyOf": [{"type": "string"}, {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}]}}]})",
    kTokenIds = R"({"type": "array", "items": )" REF("TokenId") "}", kPrompts = REF("Prompts"),
    kStop = R"({"anyOf": [{"type": "string", "maxLength": 4096},
    {"type": "array", "maxItems": 64, "items": {"type": "string", "minLength": 1, "maxLength": 4096}}]})";
static_assert(kMaxBadWords == 1024 && kMaxLogprobs == 1024 && kMaxStopStrings == 64 && kMaxStopBytes == 4096 &&
              kMaxChoices == 128 && kMaxBreakers == 64 && kMaxBreakerBytes == 256);

// In any order: parse_api_request settles fields that depend on each other.
constexpr ApiField kFields[] = {
    {"model", kAll, read_model, REF("ModelName"), "one of GET /v1/models; the first by default"},
    {"messages", kChat | kTokenize | kTemplate, read_chat_messages,
     R"({"type": "array", "minItems": 1, "items": )" REF("Message") "}"},
    {"messages", kMessageInput, read_text_messages,
     R"({"type": "array", "minItems": 1, "items": )" REF("TextMessage") "}",
     "a trailing assistant message is continued"},
    {"system", kMessageInput, read_system, R"({"anyOf": [{"type": "string"}, )" REF("TextParts") "]}"},
    {"input", kResponse, read_items,
     R"({"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": )" REF("Item") "}]}"},
    {"instructions", kResponse, read_instructions, kText, "a system message before the input"},
    {"input", kEmbedding, read_prompt, kPrompts},
    {"prompt", kCompletion | kLlama, read_prompt, kPrompts},
    {"prompt", kTokenize, read_one_text, kText},
    {"content", kTokenize, read_content, kPrompts, "llama.cpp's: one prompt"},
    {"add_special", kTokenize, read_add_special, kSwitch, "with content: add BOS and the like; false by default"},
    {"with_pieces", kTokenize, &ApiRequest::with_pieces, {}, "with content: also the text of each token"},
    {"tokens", kDetokenize, read_tokens, kTokenIds},
    {"encoding_format", kEmbedding, read_encoding_format, R"({"enum": ["float", "base64"]})",
     "base64: float32, little-endian"},
    {"dimensions", kEmbedding, read_dimensions, REF("Dimensions")},
    {"pooling", kEmbedding, read_pooling, R"({"enum": ["mean", "last", "cls"]})",
     "mean of all tokens' final hidden states, or the last or first token's; by default as the model's files say, or "
     "mean"},
    {"query", kRerank, read_query, kText},
    {"documents", kRerank | kScore, read_scored_documents, kDocuments, "texts, or objects with a text"},
    {"queries", kScore, read_queries, kDocuments, "one for all documents, or one for each"},
    {"text_1", kScore, read_queries, kDocuments, "queries"},
    {"text_2", kScore, read_scored_documents, kDocuments, "documents"},
    {"top_n", kRerank, read_top_n, R"({"type": "integer", "minimum": 0, "maximum": 2147483647})",
     "only so many of the best documents; 0: all"},
    {"return_documents", kRerank, &ApiRequest::return_documents, {}, "with their texts; true by default"},
    {"return_token_strs", kTokenize, &ApiRequest::return_token_strs},
    {"max_tokens", kBoth | kLlama, read_max_tokens, kLimit, "-1: no limit; 0: only with prompt_logprobs or echo"},
    {"n_predict", kBoth | kInfill | kLlama, read_max_tokens, kLimit, "llama.cpp's max_tokens"},
    {"max_completion_tokens", kChat, read_max_completion_tokens, kPositiveLimit, "overrides max_tokens"},
    {"max_tokens", kMessage, read_max_answer_tokens, kPositive},
    {"max_output_tokens", kResponse, read_max_output_tokens, kPositiveLimit, "-1: no limit"},
    {"dry_sequence_breakers", kGenerate, read_breakers,
     R"({"type": "array", "maxItems": 64, "items": {"type": "string", "minLength": 1, "maxLength": 256}})",
     "texts that DRY's repetitions do not extend over; default: a line end, a colon, a quotation mark and an asterisk"},
    {"repeat_penalty", kGenerate, &sampling_parameter("repetition_penalty"), {}, "llama.cpp's repetition_penalty"},
    {"logit_bias", kGenerate, read_logit_bias,
     R"({"anyOf": [{"type": "object", "propertyNames": {"pattern": "^[0-9]+$"},
         "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}},
       {"type": "array", "items": {"type": "array", "minItems": 2, "maxItems": 2, "prefixItems": [)" REF("TokenId") R"(,
         {"anyOf": [{"const": false}, {"type": "number", "minimum": -100, "maximum": 100}]}]}}]})",
     "maps token ids to values added to their logits; llama.cpp's pairs, too, where false bans the token"},
    {"allowed_token_ids", kGenerate, read_allowed_token_ids,
     R"({"type": "array", "minItems": 1, "items": )" REF("TokenId") "}", "the answer consists of these tokens only"},
    {"bad_words", kGenerate, read_bad_words,
     R"({"type": "array", "maxItems": 1024, "items": {"type": "string", "minLength": 1, "maxLength": 4096}})",
     "never generated as the tokens that spell them, with or without a leading space; 64 KiB in total"},
    {"seed", kGenerate, read_seed,
     R"({"type": "integer", "minimum": -9223372036854775808, "maximum": 18446744073709551615})",
     "the same seed gives the same answer; the server draws one by default and for -1"},
    {"stop", kGenerate & ~kMessage, read_stop, kStop, "64 KiB in total; an empty string: none"},
    {"stop_sequences", kMessage, read_stop, kStop, "64 KiB in total"},
    {"stop_token_ids", kGenerate, read_stop_token_ids, kTokenIds},
    {"logprobs", kChat, read_logprobs, kSwitch},
    {"logprobs", kCompletion, read_logprobs, kUpToLogprobs, "with echo also for the prompt's tokens"},
    {"top_logprobs", kChat | kResponse, read_top_logprobs, kUpToLogprobs,
     "needs logprobs, in responses include: [\"message.output_text.logprobs\"]"},
    {"prompt_logprobs", kBoth, read_prompt_logprobs, kUpToLogprobs, "not in streams"},
    {"n", kBoth, &sampling_parameter("n"), {}, "prompts times n: at most 2048"},
    {"n_cmpl", kLlama, &sampling_parameter("n"), {}, "n"},
    {"n_probs", kInfill | kLlama, read_n_probs, kUpToLogprobs, "logprobs; 0: none"},
    {"return_tokens", kInfill | kLlama, &ApiRequest::return_token_ids, {}, "also return the ids of the answer"},
    {"response_fields", kInfill | kLlama, read_response_fields,
     R"({"type": "array", "maxItems": 64, "items": {"type": "string"}})",
     "return only these members; timings/prompt_n is one of another"},
    {"best_of", kBoth, read_best_of, R"({"type": "integer", "minimum": 1, "maximum": 128})", "must equal n"},
    {"stream", kBodies, &ApiRequest::stream},
    {"stream_options", kBoth | kResponse, read_stream_options,
     R"({"type": "object", "properties": {"include_usage": {"type": ["boolean", "null"]},
         "continuous_usage_stats": {"type": ["boolean", "null"]},
         "include_obfuscation": {"type": ["boolean", "null"]}}})",
     "only for streams; nothing is obfuscated"},
    {"echo", kCompletion, &ApiRequest::echo, {}, "the answer begins with the prompt"},
    {"add_special_tokens",
     kCompletion | kEmbedding | kTokenize,
     &ApiRequest::add_special_tokens,
     {},
     "add BOS and the like to texts; true by default"},
    {"parse_special", kAll & ~kDetokenize & ~kInfill, read_parse_special, kSwitch,
     "whether a text that spells a special token (<|im_end|>) is that token; default: true in prompts, false in "
     "messages"},
    {"return_tokens_as_token_ids",
     kBoth,
     &ApiRequest::return_tokens_as_token_ids,
     {},
     "logprobs name tokens \"token_id:17\""},
    {"return_token_ids", kBoth, &ApiRequest::return_token_ids, {}, "also return prompt_token_ids and token_ids"},
    {"truncate_prompt_tokens", kScores, read_truncate_prompt_tokens,
     R"({"anyOf": [{"const": -1}, {"type": "integer", "minimum": 1, "maximum": 2147483647}]})",
     "cut the longer text, in prompts of decoders the document, until the pair has at most so many tokens; -1: as many "
     "as fit"},
    {"truncate_prompt_tokens", kBoth | kEmbedding, read_truncate_prompt_tokens,
     R"({"anyOf": [{"const": -1}, {"type": "integer", "minimum": 1, "maximum": 2147483647}]})",
     "keep only the prompt's last tokens; -1: as many as fit"},
    {"add_generation_prompt", kChat | kTokenize | kTemplate, read_add_generation_prompt, kSwitch},
    {"continue_final_message", kChat | kTokenize | kTemplate, read_continue_final_message, kSwitch,
     "continue the last message; not with add_generation_prompt"},
    {"chat_template_kwargs", kChat | kResponse | kMessageInput | kTokenize | kTemplate, read_template_kwargs,
     R"({"type": "object"})", "variables for the chat template"},
    {"reasoning_effort", kChat, read_reasoning_effort, kText, "a variable for the chat template"},
    {"verbosity", kChat, read_verbosity, kText, "a variable for the chat template"},
    {"reasoning", kResponse, read_reasoning,
     R"({"type": "object", "properties": {"effort": {"type": ["string", "null"]}}})",
     "effort is a variable for the chat template"},
    {"text", kResponse, read_text_options,
     R"({"type": "object", "properties": {"verbosity": {"type": ["string", "null"]},
         "format": {"type": ["object", "null"], "required": ["type"], "properties": {"type": {"enum": ["text",
         "json_object", "json_schema"]}, "schema": {}}}}})",
     "format: what the answer matches; verbosity is a variable for the chat template"},
    {"truncation", kResponse, read_truncation, R"({"enum": ["disabled", "auto"]})",
     "input that does not fit is refused in either case"},
    {"store", kResponse | kChat, read_store, kSwitch, "nothing is stored"},
    {"include", kResponse, read_include, R"({"type": "array", "maxItems": 64, "items": {"type": "string"}})",
     "message.output_text.logprobs; the others name what text answers do not have"},
    {"thinking", kMessageInput, read_thinking,
     R"({"type": "object", "required": ["type"], "properties": {"type": {"enum": ["enabled", "disabled", "adaptive"]}}})",
     "sets enable_thinking for the chat template; a thought of budget_tokens is closed"},
    {"context_management", kMessageInput, read_context_management,
     R"({"type": "object", "properties": {"edits": {"type": ["array", "null"], "maxItems": 64, "items": {"type": "object",
         "required": ["type"], "properties": {"type": {"type": "string", "pattern": "^clear_"}}}}}})",
     "edits that clear tool uses or thinking have nothing to clear"},
    {"output_config", kMessageInput, read_output_config,
     R"({"type": "object", "properties": {"effort": {"type": ["string", "null"]}, "format": {"type": ["object", "null"],
         "required": ["type"], "properties": {"type": {"enum": ["text", "json_schema"]}, "schema": {}}}}})",
     "format: what the answer matches; effort is the variable reasoning_effort of the chat template"},
    {"response_format", kBoth, read_response_format,
     R"({"type": "object", "required": ["type"], "properties": {"type": {"enum": ["text", "json_object", "json_schema"]},
         "json_schema": {"type": "object", "required": ["schema"]}}})",
     "what the answer matches (docs/structured-output.md)"},
    {"structured_outputs", kGenerate, read_structured_outputs,
     R"({"type": "object", "properties": {"json": {}, "json_object": {"type": ["boolean", "null"]},
         "regex": {"type": ["string", "null"]}, "choice": {"type": ["array", "null"], "items": {"type": "string"}},
         "grammar": {"type": ["string", "null"]}}})",
     "one of json (a schema), json_object, regex, choice and grammar (GBNF)"},
    {"guided_json", kGenerate, read_guided_json, kSchema, "structured_outputs.json"},
    {"guided_regex", kGenerate, read_guided_regex, kText, "structured_outputs.regex"},
    {"guided_choice", kGenerate, read_guided_choice,
     R"({"type": "array", "minItems": 1, "maxItems": 4096, "items": {"type": "string", "minLength": 1}})",
     "structured_outputs.choice"},
    {"guided_grammar", kGenerate, read_grammar, kText, "structured_outputs.grammar"},
    {"grammar", kGenerate, read_grammar, kText, "GBNF, llama.cpp's notation"},
    {"regex", kGenerate, read_guided_regex, kText, "SGLang's: structured_outputs.regex"},
    {"ebnf", kGenerate, read_grammar, kText, "SGLang's: structured_outputs.grammar"},
    {"json_schema", kGenerate, read_schema, kSchema, "llama.cpp's: a schema that the answer matches"},
    {"output_format", kMessage, read_output_format,
     R"({"type": "object", "required": ["type"], "properties": {"type": {"enum": ["text", "json_schema"]}, "schema": {}}})",
     "what the answer matches"},
    {"tools", kChat | kTokenize | kTemplate, read_tools,
     R"({"type": "array", "maxItems": 512, "items": )" REF("Tool") "}"},
    {"tools", kResponse, read_response_tools,
     R"({"type": "array", "maxItems": 512, "items": )" REF("ResponseTool") "}"},
    {"tools", kMessageInput, read_message_tools,
     R"({"type": "array", "maxItems": 512, "items": )" REF("MessageTool") "}"},
    {"functions", kChat, read_functions, R"({"type": "array", "maxItems": 512, "items": )" REF("Function") "}",
     "deprecated: tools"},
    {"tool_choice", kChat | kResponse, read_tool_choice, REF("ToolChoice")},
    {"tool_choice", kMessageInput, read_message_tool_choice,
     R"({"type": "object", "required": ["type"], "properties": {"type": {"enum": ["auto", "any", "tool", "none"]},
         "name": {"type": "string"}, "disable_parallel_tool_use": {"type": ["boolean", "null"]}}})",
     "none: the model is not told of the tools"},
    {"function_call", kChat, read_function_call,
     R"({"anyOf": [{"enum": ["auto", "none"]}, {"type": "object", "required": ["name"]}]})", "deprecated: tool_choice"},
    {"parallel_tool_calls", kChat | kResponse, read_parallel_tool_calls, kSwitch,
     "false: only the first call is answered"},
    {"include_reasoning", kChat | kResponse, &ApiRequest::include_reasoning, {}, "false: reasoning is left out"},
    {"max_reasoning_tokens", kChat | kResponse, read_max_reasoning_tokens,
     R"({"type": "integer", "minimum": 0, "maximum": 2147483647})",
     "a longer thought is closed, and the answer follows"},
    {"thinking_token_budget", kChat | kResponse, read_max_reasoning_tokens,
     R"({"type": "integer", "minimum": 0, "maximum": 2147483647})", "the same, vLLM's name"},
    {"enable_thinking", kChat | kResponse, read_enable_thinking, kSwitch, "a variable for the chat template"},
    {"documents", kChat, read_documents, R"({"type": "array", "maxItems": 1024, "items": {"type": "object"}})",
     "for the chat template"},
    {"priority", kEngine, &ApiRequest::priority, {}, "lower runs earlier; 0 by default"},
    {"timeout", kEngine, read_timeout, R"({"type": "number", "minimum": 0.001, "maximum": 1000000})",
     "seconds for the whole answer, including waiting; at most the server's own"},
    {"cache_salt", kEngine, read_cache_salt, R"({"type": "string", "minLength": 1, "maxLength": 256})",
     "prompts share cached prefixes only with prompts of the same salt"},

    // Fill in the middle.
    {"suffix", kCompletion | kOllamaGenerate, read_suffix, kText,
     "fill in the middle: the answer goes between prompt and suffix"},
    {"input_prefix", kInfill, read_input_prefix, kText, "before the gap"},
    {"prompt", kInfill, read_typed_prompt, kText, "continues input_prefix"},
    {"input_suffix", kInfill, read_input_suffix, kText, "after the gap"},
    {"input_extra", kInfill, read_input_extra,
     R"({"type": "array", "maxItems": 1024, "items": {"type": "object", "required": ["text"],
         "properties": {"text": {"type": "string"}, "filename": {"type": ["string", "null"]}}}})",
     "other files, which come before the prefix"},

    // Ollama's.
    {"model", kOllamaTexts | kOllamaVectors | kOllamaShow, read_ollama_model, REF("OllamaModelName"),
     "one of GET /api/tags, with or without :latest; the first by default"},
    {"messages", kOllamaChat, read_ollama_messages, R"({"type": "array", "items": )" REF("OllamaMessage") "}",
     "none: the answer says that the model is loaded; a trailing assistant message is continued"},
    {"prompt", kOllamaGenerate, read_one_text, kText, "empty: the answer says that the model is loaded"},
    {"prompt", kOllamaEmbeddings, read_one_text, kText},
    {"input", kOllamaEmbed, read_prompt, kPrompts},
    {"system", kOllamaGenerate, read_ollama_system, kText, "a system message before the prompt"},
    {"raw", kOllamaGenerate, read_raw, kSwitch, "true: without the chat template"},
    {"stream", kOllamaTexts, &ApiRequest::stream, {}, "true by default: one JSON object on each line"},
    {"format", kOllamaTexts, read_format, R"({"anyOf": [{"enum": ["", "json"]}, {"type": "object"}]})",
     "json, or a JSON Schema that the answer matches"},
    {"think", kOllamaTexts, read_think,
     R"({"anyOf": [{"type": "boolean"}, {"enum": ["low", "medium", "high", "max"]}]})",
     "sets enable_thinking and reasoning_effort for the chat template; true only for models that think"},
    {"tools", kOllamaChat, read_tools, R"({"type": "array", "maxItems": 512, "items": )" REF("Tool") "}"},
    {"logprobs", kOllamaTexts, read_logprobs, kSwitch},
    {"top_logprobs", kOllamaTexts, read_top_logprobs, kUpToLogprobs, "needs logprobs"},
    {"options", kOllamaTexts | kOllamaVectors | kOllamaShow, read_options, REF("OllamaOptions"),
     "parameters of sampling"},
    {"truncate", kOllamaEmbed, read_truncate, kSwitch,
     "false: texts that are too long are refused; by default only their first tokens count"},
    {"dimensions", kOllamaEmbed, read_dimensions, REF("Dimensions")},
    {"num_predict", kOllamaOptions, read_num_predict, R"({"type": "integer", "minimum": -2, "maximum": 2147483647})",
     "the most tokens; 0, -1 and -2: no limit"},
    {"num_ctx", kOllamaOptions, read_num_ctx, R"({"type": "integer", "minimum": 0})",
     "the server's context counts in any case; a larger number is logged once"},
};
#undef REF

#define SAMPLERS R"(["penalties", "dry", "top_n_sigma", "temperature", "typ_p", "top_k", "top_p", "min_p", "xtc"])"
constexpr std::string_view kOwnTemplate = "start the server with --chat-template FILE";
constexpr std::string_view kTools = "use /v1/chat/completions",
                           kNotStored = "nothing is stored; send the whole conversation as input";
constexpr RefusedField kRefused[] = {
    {"tools", kCompletion, "[[]]", kTools},
    {"tool_choice", kCompletion, R"(["none"])", kTools},
    {"functions", kCompletion, "[[]]", kTools},
    {"function_call", kCompletion, R"(["none"])", kTools},
    {"response_format", kResponse | kMessage, R"([{"type": "text"}])",
     "use text.format in responses, output_format in messages"},
    {"guided_whitespace_pattern", kGenerate, "[]", "white space between JSON tokens is fixed"},
    {"prompt_embeds", kCompletion, "[]", "send text or token ids"},
    {"extra_body", kAnswers, "[{}]", "it is an argument of OpenAI's Python client; send its members as parameters"},
    {"sampling_params", kAnswers, "[{}]", "send its members as parameters"},
    {"parameters", kAnswers, "[{}]", "send its members as parameters"},
    {"use_beam_search", kGenerate, "[false]", ""},
    {"logits_processors", kGenerate, "[[]]", ""},
    {"vllm_xargs", kGenerate, "[{}]", ""},
    {"chat_template", kGenerate | kTokenize | kCountTokens | kTemplate, R"([""])", kOwnTemplate},
    {"audio", kGenerate, "[]", "answers are text"},
    {"modalities", kGenerate, R"([["text"]])", "answers are text"},
    {"web_search_options", kGenerate, "[]", ""},
    {"top_a", kGenerate, "[0]", ""},
    {"tfs_z", kGenerate, "[1]", ""},
    {"samplers", kGenerate & ~kInfill, "[[], " SAMPLERS "]", "the order of samplers is fixed"},
    {"min_keep", kGenerate, "[0]", ""},
    {"n_indent", kInfill | kLlama, "[0]", ""},
    {"lora", kInfill | kLlama, "[[]]", ""},
    {"post_sampling_probs", kInfill | kLlama, "[false]", "n_probs gives probabilities before sampling"},
    {"image_data", kLlama, "[[]]", "prompts are text"},
    {"system_prompt", kLlama, R"(["", {}])", "put it into the prompt"},
    {"thinking", kGenerate & ~kMessage, R"([{"type": "disabled"}])", "set enable_thinking in chat_template_kwargs"},
    {"background", kResponse, "[false]", "nothing is stored"},
    {"previous_response_id", kResponse, "[]", kNotStored},
    {"conversation", kResponse, "[]", kNotStored},
    {"template", kOllamaGenerate, R"([""])", kOwnTemplate},
    {"context", kOllamaGenerate, "[[]]", "send the whole conversation to /api/chat"},
    {"max_tokens_per_doc", kRerank, "[]", "use truncate_prompt_tokens"},
    {"max_chunks_per_doc", kRerank, "[]", "use truncate_prompt_tokens"},
    {"rank_fields", kRerank, "[]", "send texts"},
    {"images", kOllamaGenerate, "[[]]", "prompts are text"},
};

}  // namespace

const std::string_view kSamplerOrder = SAMPLERS;
#undef SAMPLERS

bool constrains(std::string_view name, Api api) {
  constexpr std::string_view kWords[] = {"grammar", "regex",  "ebnf",     "gbnf",     "lark",
                                         "schema",  "guided", "structur", "constrain"};
  constexpr std::string_view kNames[] = {"choice",         "choices",      "json",
                                         "jsonmode",       "jsonobject",   "responsemimetype",
                                         "responseformat", "outputformat", "outputtype"};
  if ((bits(api) & (kAnswers | kOllamaOptions)) == 0) return false;
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

bool is_of(const ApiField& field, Api api) { return (field.apis & bits(api)) != 0; }

bool is_required(const ApiField& field, Api api) {
  switch (api) {
    case Api::kChat:
    case Api::kCountTokens:
    case Api::kApplyTemplate:
      return field.name == "messages";
    case Api::kMessage:
      return field.name == "messages" || field.name == "max_tokens";
    case Api::kCompletion:
    case Api::kLlamaCompletion:
      return field.name == "prompt";
    case Api::kResponse:
    case Api::kCountInput:
    case Api::kEmbedding:
    case Api::kOllamaEmbed:
      return field.name == "input";
    case Api::kOllamaEmbeddings:
      return field.name == "prompt";
    case Api::kRerank:
      return field.name == "query" || field.name == "documents";
    case Api::kInfill:
      return field.name == "input_prefix" || field.name == "input_suffix";
    case Api::kTokenize:  // prompt, content or messages
    case Api::kScore:     // text_1 and text_2, or queries and documents
    case Api::kOllamaChat:
    case Api::kOllamaGenerate:
    case Api::kOllamaShow:
    case Api::kOllamaOptions:
      return false;
    case Api::kDetokenize:
      return field.name == "tokens";
  }
  return false;
}

std::span<const ApiField> api_fields() {
  static const std::vector<ApiField> all = [] {
    std::vector<ApiField> fields(std::begin(kFields), std::end(kFields));
    for (const SamplingParameter& parameter : kSamplingParameters) {
      if (std::ranges::find(kFields, parameter.name, &ApiField::name) == std::end(kFields))
        fields.push_back({parameter.name, kGenerate, &parameter});
    }
    return fields;
  }();
  return all;
}
std::span<const RefusedField> refused_fields() { return kRefused; }

}  // namespace quire
