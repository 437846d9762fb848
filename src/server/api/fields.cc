#include "server/api/fields.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "server/api/error.h"

namespace quire {
namespace {

constexpr size_t kMaxSaltBytes = 256;
constexpr size_t kMaxTextBytes = 64 << 10;  // of all stop strings, and of all bad words
constexpr int kIntMax = std::numeric_limits<int>::max();
constexpr uint8_t kChat = static_cast<uint8_t>(Api::kChat), kCompletion = static_cast<uint8_t>(Api::kCompletion),
                  kResponse = static_cast<uint8_t>(Api::kResponse), kMessage = static_cast<uint8_t>(Api::kMessage),
                  kEmbedding = static_cast<uint8_t>(Api::kEmbedding), kTokenize = static_cast<uint8_t>(Api::kTokenize),
                  kDetokenize = static_cast<uint8_t>(Api::kDetokenize);
constexpr uint8_t kBoth = kChat | kCompletion, kGenerate = kBoth | kResponse | kMessage,
                  kAll = kGenerate | kEmbedding | kTokenize | kDetokenize;

constexpr ApiInfo kApis[] = {
    {Api::kChat, "/v1/chat/completions", "Answer a chat."},
    {Api::kCompletion, "/v1/completions", "Go on with texts."},
    {Api::kResponse, "/v1/responses", "Answer a text or a conversation: OpenAI's responses, text alone."},
    {Api::kMessage, "/v1/messages", "Answer a conversation: Anthropic's messages, text alone."},
    {Api::kEmbedding, "/v1/embeddings", "Vectors of texts, from the final hidden states."},
    {Api::kTokenize, "/tokenize", "The tokens of a text or of a chat's prompt."},
    {Api::kDetokenize, "/detokenize", "The text of tokens."},
};

void read_model(ApiDraft& draft, const JsonField& field) {
  draft.model = field.string();
  for (const std::string& served : draft.limits.models) {
    if (served == draft.model) return;
  }
  throw ApiError(404,
                 fmt::format("the model {} is not served here; GET /v1/models lists what is", describe(field.json())),
                 "invalid_request_error", "model", "model_not_found");
}

void read_max_tokens(ApiDraft& draft, const JsonField& field) {
  draft.sampling.max_tokens = static_cast<int>(field.integer(0, kIntMax));
}

void read_n_predict(ApiDraft& draft, const JsonField& field) {
  const auto tokens = static_cast<int>(field.integer(-1, kIntMax));
  draft.sampling.max_tokens = tokens < 0 ? kIntMax : tokens;
}

// Where no prompt can come back there is nothing without a token.
void read_max_answer_tokens(ApiDraft& draft, const JsonField& field) {
  draft.sampling.max_tokens = static_cast<int>(field.integer(1, kIntMax));
}

void read_max_completion_tokens(ApiDraft& draft, const JsonField& field) {
  draft.max_completion_tokens = static_cast<int>(field.integer(1, kIntMax));
}

void read_seed(ApiDraft& draft, const JsonField& field) {
  const bool is_unsigned = field.json().is_number_unsigned();
  const int64_t number = is_unsigned ? 0 : field.integer(INT64_MIN, INT64_MAX);
  if (number == -1) return;  // draw one, as in vLLM and llama.cpp
  draft.has_seed = true;
  draft.sampling.seed = is_unsigned ? field.as<uint64_t>() : static_cast<uint64_t>(number);
}

// So that their tokens and tables stay small however many there are.
void bound_bytes(const std::vector<std::string>& texts, const JsonField& field) {
  size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();
  if (bytes > kMaxTextBytes) {
    throw field.error("{} bytes in all, at most {} are allowed", bytes, kMaxTextBytes);
  }
}

void read_stop(ApiDraft& draft, const JsonField& field) {
  const auto add = [&](const JsonField& element) {
    if (!element.json().is_string()) {
      throw element.error("expected a string{}, found {}", &element == &field ? " or an array of strings" : "",
                          describe(element.json()));
    }
    const std::string& text = element.string();
    if (text.empty()) throw element.error("a stop string must not be empty");
    if (text.size() > kMaxStopBytes) {
      throw element.error("a stop string has {} bytes, at most {} are allowed", text.size(), kMaxStopBytes);
    }
    draft.sampling.stop.push_back(text);
  };
  if (!field.json().is_array()) return add(field);
  for (const JsonField& element : field.elements(kMaxStopStrings)) add(element);
  bound_bytes(draft.sampling.stop, field);
}

void read_stop_token_ids(ApiDraft& draft, const JsonField& field) {
  draft.sampling.stop_token_ids =
      read_token_ids(field, draft.limits.vocab_size, static_cast<size_t>(draft.limits.vocab_size));
}

void read_allowed_token_ids(ApiDraft& draft, const JsonField& field) {
  draft.sampling.allowed_token_ids =
      read_token_ids(field, draft.limits.vocab_size, static_cast<size_t>(draft.limits.vocab_size));
  if (draft.sampling.allowed_token_ids.empty()) throw field.error("an empty list allows no token");
}

void read_bad_words(ApiDraft& draft, const JsonField& field) {
  for (const JsonField& element : field.elements(kMaxBadWords)) {
    const std::string& word = element.string();
    if (word.empty()) throw element.error("a bad word must not be empty");
    if (word.size() > kMaxStopBytes)
      throw element.error("a bad word has {} bytes, at most {} are allowed", word.size(), kMaxStopBytes);
    draft.sampling.bad_words.push_back(word);
  }
  bound_bytes(draft.sampling.bad_words, field);
}

void read_logit_bias(ApiDraft& draft, const JsonField& field) {
  const auto biases = field.members();
  if (std::cmp_greater(biases.size(), draft.limits.vocab_size)) {  // "1", "01", "001" are one token
    throw field.error("has {} entries, but there are {} tokens", biases.size(), draft.limits.vocab_size);
  }
  for (const auto& [key, bias] : biases) {
    TokenId id = kNoToken;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= draft.limits.vocab_size) {
      throw field.error("{} is not a token id in [0, {}]", describe(Json(key)), draft.limits.vocab_size - 1);
    }
    draft.sampling.logit_bias.emplace_back(id, static_cast<float>(bias.number(-100, 100)));
  }
}

void read_logprobs(ApiDraft& draft, const JsonField& field) {
  if (draft.api == Api::kChat) {
    draft.logprobs = field.boolean();
  } else {
    draft.sampling.logprobs = static_cast<int>(field.integer(0, kMaxLogprobs));
  }
}

void read_top_logprobs(ApiDraft& draft, const JsonField& field) {
  draft.top_logprobs = static_cast<int>(field.integer(0, kMaxLogprobs));
}

void read_best_of(ApiDraft& draft, const JsonField& field) {
  draft.best_of = static_cast<int>(field.integer(1, kMaxChoices));
}

void read_stream_options(ApiDraft& draft, const JsonField& field) {
  draft.has_stream_options = true;
  for (const auto& [key, option] : field.members()) {
    if (option.json().is_null()) continue;
    if (key == "include_usage") {
      draft.include_usage = option.boolean();
    } else if (key == "continuous_usage_stats") {
      draft.continuous_usage_stats = option.boolean();
    } else {
      draft.without_effect.push_back("stream_options." + std::string(key));
    }
  }
}

void read_add_generation_prompt(ApiDraft& draft, const JsonField& field) {
  draft.add_generation_prompt = field.boolean();
}

void read_continue_final_message(ApiDraft& draft, const JsonField& field) {
  draft.chat.continue_final_message = field.boolean();
}

void read_template_kwargs(ApiDraft& draft, const JsonField& field) { draft.chat.kwargs.update(field.object().json()); }

void read_reasoning_effort(ApiDraft& draft, const JsonField& field) {
  // As in vLLM: what it means is up to the template; chat_template_kwargs wins.
  draft.chat.kwargs.emplace("reasoning_effort", field.string());
}

void read_documents(ApiDraft& draft, const JsonField& field) {
  for (const JsonField& document : field.elements(1024)) document.object();
  draft.chat.documents = field.json();
}

void read_truncate_prompt_tokens(ApiDraft& draft, const JsonField& field) {
  const int64_t tokens = field.integer(-1, kIntMax);
  if (tokens == 0) throw field.error("0 would leave no prompt; allowed are -1 (what the model takes) and above 0");
  draft.truncate_prompt_tokens = tokens < 0 ? draft.limits.max_model_len - 1 : static_cast<int>(tokens);
}

void read_prompt_logprobs(ApiDraft& draft, const JsonField& field) {
  draft.sampling.prompt_logprobs = static_cast<int>(field.integer(0, kMaxLogprobs));
  draft.prompt_logprobs = true;
}

void read_cache_salt(ApiDraft& draft, const JsonField& field) {
  draft.cache_salt = field.string();
  if (draft.cache_salt.empty()) throw field.error("must not be empty");
  if (draft.cache_salt.size() > kMaxSaltBytes) {
    throw field.error("has {} bytes, at most {} are allowed", draft.cache_salt.size(), kMaxSaltBytes);
  }
}

void read_timeout(ApiDraft& draft, const JsonField& field) { draft.timeout = field.number(0.001, 1e6); }

void read_instructions(ApiDraft& draft, const JsonField& field) { draft.instructions = field.string(); }

void read_tokens(ApiDraft& draft, const JsonField& field) {
  draft.has_prompt = true;
  draft.prompts.emplace_back(read_token_ids(field, draft.limits.vocab_size, kMaxBodyValues));
}

void read_pooling(ApiDraft& draft, const JsonField& field) {
  const std::string& pooling = field.string();
  if (pooling != "mean" && pooling != "last") {
    throw field.error("{} is not known; allowed are \"mean\" and \"last\"", describe(field.json()));
  }
  draft.pooling = pooling == "last" ? Pooling::kLast : Pooling::kMean;
}

void read_encoding_format(ApiDraft& draft, const JsonField& field) {
  const std::string& format = field.string();
  if (format != "float" && format != "base64") {
    throw field.error("{} is not known; allowed are \"float\" and \"base64\"", describe(field.json()));
  }
  draft.base64 = format == "base64";
}

#define REF(name) R"({"$ref": "#/components/schemas/)" name R"("})"
constexpr std::string_view kText = R"({"type": "string"})", kSwitch = R"({"type": "boolean"})",
                           kCount = R"({"type": "integer", "minimum": 0, "maximum": 2147483647})",
                           kPositive = R"({"type": "integer", "minimum": 1, "maximum": 2147483647})",
                           kUpToLogprobs = R"({"type": "integer", "minimum": 0, "maximum": 1024})",
                           kTokenIds = R"({"type": "array", "items": )" REF("TokenId") "}", kPrompts = REF("Prompts"),
                           kStop = R"({"anyOf": [{"type": "string", "minLength": 1, "maxLength": 4096},
    {"type": "array", "maxItems": 64, "items": {"type": "string", "minLength": 1, "maxLength": 4096}}]})";
static_assert(kMaxBadWords == 1024 && kMaxLogprobs == 1024 && kMaxStopStrings == 64 && kMaxStopBytes == 4096 &&
              kMaxChoices == 128);

// Order does not matter: fields that depend on each other meet in parse_api_request.
constexpr ApiField kFields[] = {
    {"model", kAll, read_model, 0, 0, REF("ModelName"), "one of GET /v1/models; without it the first of them"},
    {"messages", kChat | kTokenize, read_messages, 0, 0,
     R"({"type": "array", "minItems": 1, "items": )" REF("Message") "}"},
    {"messages", kMessage, read_text_messages, 0, 0,
     R"({"type": "array", "minItems": 1, "items": )" REF("TextMessage") "}",
     "an assistant's message at the end is gone on with"},
    {"system", kMessage, read_system, 0, 0, R"({"anyOf": [{"type": "string"}, )" REF("TextParts") "]}"},
    {"input", kResponse, read_items, 0, 0,
     R"({"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": )" REF("Item") "}]}"},
    {"instructions", kResponse, read_instructions, 0, 0, kText, "a system message before the input"},
    {"input", kEmbedding, read_prompt, 0, 0, kPrompts},
    {"prompt", kCompletion, read_prompt, 0, 0, kPrompts},
    {"prompt", kTokenize, read_one_text, 0, 0, kText},
    {"tokens", kDetokenize, read_tokens, 0, 0, kTokenIds},
    {"encoding_format", kEmbedding, read_encoding_format, 0, 0, R"({"enum": ["float", "base64"]})",
     "base64: float32, little-endian"},
    {"pooling", kEmbedding, read_pooling, 0, 0, R"({"enum": ["mean", "last"]})",
     "mean (default) of all tokens' final hidden states, or the last token's"},
    {"return_token_strs", kTokenize, &ApiRequest::return_token_strs},
    {"max_tokens", kBoth, read_max_tokens, 0, 0, kCount, "0 with prompt_logprobs or echo alone"},
    {"n_predict", kBoth, read_n_predict, 0, 0, R"({"type": "integer", "minimum": -1, "maximum": 2147483647})",
     "llama.cpp's max_tokens; -1: no limit"},
    {"max_completion_tokens", kChat, read_max_completion_tokens, 0, 0, kPositive, "leads over max_tokens"},
    {"max_tokens", kMessage, read_max_answer_tokens, 0, 0, kPositive},
    {"max_output_tokens", kResponse, read_max_answer_tokens, 0, 0, kPositive},
    {"temperature", kGenerate, &SamplingParams::temperature, 0, 100, {}, "0: the most probable token"},
    {"top_p", kGenerate, &SamplingParams::top_p, 0, 1},
    {"top_k", kGenerate, &SamplingParams::top_k, -1, kIntMax, {}, "0 and -1: all"},
    {"min_p", kGenerate, &SamplingParams::min_p, 0, 1},
    {"typical_p", kGenerate, &SamplingParams::typical_p, 0, 1},
    {"repetition_penalty", kGenerate, &SamplingParams::repetition_penalty, 0.01, 100},
    {"repeat_penalty", kGenerate, &SamplingParams::repetition_penalty, 0.01, 100, {}, "llama.cpp's repetition_penalty"},
    {"repeat_last_n",
     kGenerate,
     &SamplingParams::repeat_last_n,
     -1,
     kIntMax,
     {},
     "how many last tokens the penalties see; -1: all"},
    {"frequency_penalty", kGenerate, &SamplingParams::frequency_penalty, -2, 2},
    {"presence_penalty", kGenerate, &SamplingParams::presence_penalty, -2, 2},
    {"logit_bias", kGenerate, read_logit_bias, 0, 0,
     R"({"type": "object", "propertyNames": {"pattern": "^[0-9]+$"},
         "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}})",
     "from a token's id to what is added to its logit"},
    {"allowed_token_ids", kGenerate, read_allowed_token_ids, 0, 0,
     R"({"type": "array", "minItems": 1, "items": )" REF("TokenId") "}", "the answer is made of these tokens alone"},
    {"bad_words", kGenerate, read_bad_words, 0, 0,
     R"({"type": "array", "maxItems": 1024, "items": {"type": "string", "minLength": 1, "maxLength": 4096}})",
     "never generated as the tokens that spell them at the beginning of a text or behind a space; 64 KiB in all"},
    {"seed", kGenerate, read_seed, 0, 0,
     R"({"type": "integer", "minimum": -9223372036854775808, "maximum": 18446744073709551615})",
     "the same seed gives the same answer; without one, and for -1, the server draws it"},
    {"stop", kGenerate & ~kMessage, read_stop, 0, 0, kStop, "64 KiB in all"},
    {"stop_sequences", kMessage, read_stop, 0, 0, kStop, "64 KiB in all"},
    {"stop_token_ids", kGenerate, read_stop_token_ids, 0, 0, kTokenIds},
    {"include_stop_str_in_output", kGenerate, &SamplingParams::include_stop_str_in_output},
    {"ignore_eos", kGenerate, &SamplingParams::ignore_eos},
    {"min_tokens", kGenerate, &SamplingParams::min_tokens, 0, kIntMax},
    {"skip_special_tokens",
     kGenerate,
     &SamplingParams::skip_special_tokens,
     0,
     0,
     {},
     "false: the text shows special tokens by name"},
    {"logprobs", kChat, read_logprobs, 0, 0, kSwitch},
    {"logprobs", kCompletion, read_logprobs, 0, 0, kUpToLogprobs, "with echo the prompt's tokens too"},
    {"top_logprobs", kChat, read_top_logprobs, 0, 0, kUpToLogprobs, "needs logprobs"},
    {"prompt_logprobs", kBoth, read_prompt_logprobs, 0, 0, kUpToLogprobs, "not in streams"},
    {"n", kBoth, &SamplingParams::n, 1, kMaxChoices, {}, "times the prompts at most 2048"},
    {"best_of", kBoth, read_best_of, 0, 0, R"({"type": "integer", "minimum": 1, "maximum": 128})",
     "n alone is possible"},
    {"stream", kGenerate, &ApiRequest::stream},
    {"stream_options", kBoth, read_stream_options, 0, 0,
     R"({"type": "object", "properties": {"include_usage": {"type": ["boolean", "null"]},
         "continuous_usage_stats": {"type": ["boolean", "null"]}}})",
     "needs stream"},
    {"echo", kCompletion, &ApiRequest::echo, 0, 0, {}, "the answer begins with the prompt"},
    {"add_special_tokens",
     kCompletion | kEmbedding | kTokenize,
     &ApiRequest::add_special_tokens,
     0,
     0,
     {},
     "BOS and the like around texts; true by default"},
    {"return_tokens_as_token_ids",
     kBoth,
     &ApiRequest::return_tokens_as_token_ids,
     0,
     0,
     {},
     "logprobs name tokens \"token_id:17\""},
    {"return_token_ids",
     kBoth,
     &ApiRequest::return_token_ids,
     0,
     0,
     {},
     "prompt_token_ids and token_ids beside the texts"},
    {"truncate_prompt_tokens", kBoth | kEmbedding, read_truncate_prompt_tokens, 0, 0,
     R"({"anyOf": [{"const": -1}, {"type": "integer", "minimum": 1, "maximum": 2147483647}]})",
     "keeps the last so many tokens; -1: what the model takes"},
    {"add_generation_prompt", kChat | kTokenize, read_add_generation_prompt, 0, 0, kSwitch},
    {"continue_final_message", kChat | kTokenize, read_continue_final_message, 0, 0, kSwitch,
     "excludes add_generation_prompt"},
    {"chat_template_kwargs", kChat | kResponse | kMessage | kTokenize, read_template_kwargs, 0, 0,
     R"({"type": "object"})", "variables for the chat template"},
    {"reasoning_effort", kChat, read_reasoning_effort, 0, 0, kText, "a variable for the chat template"},
    {"documents", kChat, read_documents, 0, 0, R"({"type": "array", "maxItems": 1024, "items": {"type": "object"}})",
     "for the chat template"},
    {"priority",
     kGenerate | kEmbedding,
     &ApiRequest::priority,
     -kIntMax,
     kIntMax,
     {},
     "lower is earlier; 0 by default"},
    {"timeout", kGenerate | kEmbedding, read_timeout, 0, 0,
     R"({"type": "number", "minimum": 0.001, "maximum": 1000000})",
     "seconds for the whole answer, its wait included; never longer than the server's own"},
    {"cache_salt", kGenerate | kEmbedding, read_cache_salt, 0, 0,
     R"({"type": "string", "minLength": 1, "maxLength": 256})",
     "prompts share what is cached only with others of the same salt"},
};
#undef REF

constexpr std::string_view kOwnTemplate = "start the server with the template the model needs";
constexpr RefusedField kRefused[] = {
    {"tools", kGenerate | kTokenize, "[[]]", "tool calls are not supported yet"},
    {"tool_choice", kGenerate, R"(["none", {"type": "none"}])", "tool calls are not supported yet"},
    {"functions", kGenerate, "[[]]", "tool calls are not supported yet"},
    {"function_call", kGenerate, R"(["none"])", "tool calls are not supported yet"},
    {"response_format", kGenerate, R"([{"type": "text"}])", "structured output is not supported yet"},
    {"structured_outputs", kGenerate, "[{}]", "structured output is not supported yet"},
    {"guided_json", kGenerate, "[]", "structured output is not supported yet"},
    {"guided_regex", kGenerate, "[]", "structured output is not supported yet"},
    {"guided_choice", kGenerate, "[]", "structured output is not supported yet"},
    {"guided_grammar", kGenerate, "[]", "structured output is not supported yet"},
    {"guided_decoding_backend", kGenerate, "[]", "structured output is not supported yet"},
    {"guided_whitespace_pattern", kGenerate, "[]", "structured output is not supported yet"},
    {"grammar", kGenerate, R"([""])", "structured output is not supported yet"},
    {"json_schema", kGenerate, "[{}]", "structured output is not supported yet"},
    {"suffix", kCompletion, R"([""])", "text is completed at its end only"},
    {"prompt_embeds", kCompletion, "[]", "give text or token ids"},
    {"use_beam_search", kGenerate, "[false]", ""},
    {"logits_processors", kGenerate, "[[]]", ""},
    {"vllm_xargs", kGenerate, "[{}]", ""},
    {"chat_template", kGenerate | kTokenize, R"([""])", kOwnTemplate},
    {"verbosity", kGenerate, R"(["medium"])", "say in the prompt how long the answer should be"},
    {"audio", kGenerate, "[]", "answers are text"},
    {"modalities", kGenerate, R"([["text"]])", "answers are text"},
    {"web_search_options", kGenerate, "[]", ""},
    {"mirostat", kGenerate, "[0]", ""},
    {"xtc_probability", kGenerate, "[0]", ""},
    {"dry_multiplier", kGenerate, "[0]", ""},
    {"dynatemp_range", kGenerate, "[0]", ""},
    {"top_n_sigma", kGenerate, "[-1, 0]", ""},
    {"top_a", kGenerate, "[0]", ""},
    {"tfs_z", kGenerate, "[1]", ""},
    {"samplers", kGenerate, "[]", "their order is fixed"},
    {"thinking", kGenerate, R"([{"type": "disabled"}])", "chat_template_kwargs reaches the template"},
    {"output_config", kMessage, "[{}]", ""},
    {"mcp_servers", kMessage, "[[]]", "tool calls are not supported yet"},
    {"container", kMessage, "[]", "tool calls are not supported yet"},
    {"context_management", kMessage, "[]", ""},
    {"store", kResponse, "[false]", "nothing is stored; say false"},
    {"background", kResponse, "[false]", "nothing is stored"},
    {"previous_response_id", kResponse, "[]", "nothing is stored: give the conversation as input"},
    {"conversation", kResponse, "[]", "nothing is stored: give the conversation as input"},
    {"text", kResponse, R"([{}, {"format": {"type": "text"}}, {"verbosity": "medium"},
     {"format": {"type": "text"}, "verbosity": "medium"}])",
     "structured output is not supported yet"},
    {"include", kResponse, "[[]]", ""},
    {"reasoning", kResponse, "[{}]", "chat_template_kwargs reaches the template"},
    {"truncation", kResponse, R"(["disabled"])", "shorten the input"},
    {"max_tool_calls", kResponse, "[]", "tool calls are not supported yet"},
    {"dimensions", kEmbedding, "[]", "vectors are as long as the model's hidden state"},
};

}  // namespace

std::span<const ApiInfo> api_list() { return kApis; }
const ApiInfo& api_info(Api api) { return *std::ranges::find(kApis, api, &ApiInfo::api); }
bool is_of(const ApiField& field, Api api) { return (field.apis & static_cast<uint8_t>(api)) != 0; }

bool is_required(const ApiField& field, Api api) {
  switch (api) {
    case Api::kChat:
      return field.name == "messages";
    case Api::kMessage:
      return field.name == "messages" || field.name == "max_tokens";
    case Api::kCompletion:
      return field.name == "prompt";
    case Api::kResponse:
    case Api::kEmbedding:
      return field.name == "input";
    case Api::kTokenize:
      return false;  // either of two
    case Api::kDetokenize:
      return field.name == "tokens";
  }
  return false;
}

std::span<const ApiField> api_fields() { return kFields; }
std::span<const RefusedField> refused_fields() { return kRefused; }

Json schema_components(const ApiLimits& limits) {
  Json components = Json::parse(R"json({
    "TextPart": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["type", "text"],
      "properties": {"type": {"const": "text"}, "text": {"type": "string"}}}]},
    "TextParts": {"type": "array", "items": {"$ref": "#/components/schemas/TextPart"}},
    "Message": {"type": "object", "required": ["role"],
      "properties": {"role": {"type": "string", "minLength": 1},
        "content": {"anyOf": [{"type": ["string", "null"]}, {"$ref": "#/components/schemas/TextParts"}]},
        "tool_calls": {"type": ["array", "null"], "maxItems": 1024, "items": {"type": "object",
          "required": ["function"], "properties": {"function": {"type": "object", "required": ["name"],
            "properties": {"name": {"type": "string"}}}}}}},
      "anyOf": [{"properties": {"role": {"const": "assistant"}}},
                {"required": ["content"], "properties": {"content": {"type": ["string", "array"]}}}]},
    "TextMessage": {"type": "object", "required": ["role", "content"],
      "properties": {"role": {"enum": ["user", "assistant"]},
        "content": {"anyOf": [{"type": "string"}, {"$ref": "#/components/schemas/TextParts"}]}}},
    "Item": {"type": "object", "required": ["role", "content"],
      "properties": {"type": {"const": "message"}, "role": {"enum": ["user", "assistant", "system", "developer"]},
        "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"anyOf": [{"type": "string"},
          {"type": "object", "required": ["type", "text"], "properties": {"type": {"enum": ["input_text", "output_text"]},
            "text": {"type": "string"}}}]}}]}}},
    "Prompts": {"anyOf": [{"type": "string"},
      {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/TokenId"}},
      {"type": "array", "minItems": 1, "maxItems": 2048, "items": {"anyOf": [{"type": "string"},
        {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/TokenId"}}]}}]}
  })json");
  static_assert(kMaxPrompts == 2048);
  components["TokenId"] = {{"type", "integer"}, {"minimum", 0}, {"maximum", limits.vocab_size - 1}};
  components["ModelName"] = {{"type", "string"}, {"enum", limits.models}};
  return components;
}

}  // namespace quire
