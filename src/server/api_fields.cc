#include "server/api_fields.h"

#include <charconv>
#include <limits>

#include "server/api_error.h"
#include "server/json_fields.h"

namespace quire {
namespace {

constexpr int kIntMax = std::numeric_limits<int>::max();
constexpr uint8_t kBoth = 3, kChat = 1, kCompletion = 2;

void read_model(ApiDraft& draft, const Json& value, std::string_view name) {
  draft.model = read_string(value, name);
  for (const std::string& served : draft.limits.models) {
    if (served == draft.model) return;
  }
  throw ApiError(404, fmt::format("the model {} is not served here; GET /v1/models lists what is", describe(value)),
                 "invalid_request_error", "model", "model_not_found");
}

void read_max_tokens(ApiDraft& draft, const Json& value, std::string_view name) {
  draft.sampling.max_tokens = static_cast<int>(read_integer(value, name, 1, kIntMax));
}

void read_max_completion_tokens(ApiDraft& draft, const Json& value, std::string_view name) {
  draft.max_completion_tokens = static_cast<int>(read_integer(value, name, 1, kIntMax));
}

void read_seed(ApiDraft& draft, const Json& value, std::string_view name) {
  draft.has_seed = true;
  draft.sampling.seed = value.is_number_unsigned()
                            ? value.get<uint64_t>()
                            : static_cast<uint64_t>(read_integer(value, name, INT64_MIN, INT64_MAX));
}

void read_stop(ApiDraft& draft, const Json& value, std::string_view name) {
  const auto add = [&](const Json& element) {
    if (!element.is_string()) {
      throw bad_request(name, "expected a string or an array of strings, found {}", describe(element));
    }
    const auto& text = element.get_ref<const std::string&>();
    if (text.empty()) throw bad_request(name, "a stop string must not be empty");
    if (text.size() > kMaxStopBytes) {
      throw bad_request(name, "a stop string has {} bytes, at most {} are allowed", text.size(), kMaxStopBytes);
    }
    draft.sampling.stop.push_back(text);
  };
  if (!value.is_array()) return add(value);
  for (const Json& element : read_array(value, name, kMaxStopStrings)) add(element);
}

void read_stop_token_ids(ApiDraft& draft, const Json& value, std::string_view name) {
  draft.sampling.stop_token_ids =
      read_token_ids(value, name, draft.limits.vocab_size, static_cast<size_t>(draft.limits.vocab_size));
}

void read_logit_bias(ApiDraft& draft, const Json& value, std::string_view name) {
  for (const auto& [key, bias] : read_object(value, name).items()) {
    TokenId id = kNoToken;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= draft.limits.vocab_size) {
      throw bad_request(name, "{} is not a token id in [0, {}]", describe(Json(key)), draft.limits.vocab_size - 1);
    }
    draft.sampling.logit_bias.emplace_back(id, static_cast<float>(read_number(bias, name, -100, 100)));
  }
}

void read_logprobs(ApiDraft& draft, const Json& value, std::string_view name) {
  if (draft.api == Api::kChat) {
    draft.logprobs = read_bool(value, name);
  } else {
    draft.sampling.logprobs = static_cast<int>(read_integer(value, name, 0, kMaxLogprobs));
  }
}

void read_top_logprobs(ApiDraft& draft, const Json& value, std::string_view name) {
  draft.top_logprobs = static_cast<int>(read_integer(value, name, 0, kMaxLogprobs));
}

void read_best_of(ApiDraft& draft, const Json& value, std::string_view name) {
  draft.best_of = static_cast<int>(read_integer(value, name, 1, kMaxChoices));
}

void read_stream_options(ApiDraft& draft, const Json& value, std::string_view name) {
  draft.has_stream_options = true;
  for (const auto& [key, option] : read_object(value, name).items()) {
    if (option.is_null()) continue;
    if (key == "include_usage") {
      draft.include_usage = read_bool(option, "stream_options.include_usage");
    } else if (key == "continuous_usage_stats") {
      draft.continuous_usage_stats = read_bool(option, "stream_options.continuous_usage_stats");
    } else {
      draft.without_effect.push_back("stream_options." + key);
    }
  }
}

void read_add_generation_prompt(ApiDraft& draft, const Json& value, std::string_view name) {
  draft.add_generation_prompt = read_bool(value, name);
}

void read_continue_final_message(ApiDraft& draft, const Json& value, std::string_view name) {
  draft.chat.continue_final_message = read_bool(value, name);
}

void read_template_kwargs(ApiDraft& draft, const Json& value, std::string_view name) {
  draft.chat.kwargs.update(read_object(value, name));
}

void read_reasoning_effort(ApiDraft& draft, const Json& value, std::string_view name) {
  // As in vLLM: what it means is up to the template; chat_template_kwargs wins.
  draft.chat.kwargs.emplace("reasoning_effort", read_string(value, name));
}

void read_documents(ApiDraft& draft, const Json& value, std::string_view name) {
  for (const Json& document : read_array(value, name, 1024)) read_object(document, name);
  draft.chat.documents = value;
}

void read_truncate_prompt_tokens(ApiDraft& draft, const Json& value, std::string_view name) {
  const int64_t tokens = read_integer(value, name, -1, kIntMax);
  if (tokens == 0)
    throw bad_request(name, "0 would leave no prompt; allowed are -1 (what the model takes) and above 0");
  draft.truncate_prompt_tokens = tokens < 0 ? draft.limits.max_model_len - 1 : static_cast<int>(tokens);
}

// Order does not matter: fields that depend on each other meet in parse_api_request.
constexpr ApiField kFields[] = {
    {"model", kBoth, read_model},
    {"messages", kChat, read_messages},
    {"prompt", kCompletion, read_prompt},
    {"max_tokens", kBoth, read_max_tokens},
    {"n_predict", kBoth, read_max_tokens},
    {"max_completion_tokens", kChat, read_max_completion_tokens},
    {"temperature", kBoth, &SamplingParams::temperature, 0, 100},
    {"top_p", kBoth, &SamplingParams::top_p, 0, 1},
    {"top_k", kBoth, &SamplingParams::top_k, -1, kIntMax},
    {"min_p", kBoth, &SamplingParams::min_p, 0, 1},
    {"typical_p", kBoth, &SamplingParams::typical_p, 0, 1},
    {"repetition_penalty", kBoth, &SamplingParams::repetition_penalty, 0.01, 100},
    {"repeat_penalty", kBoth, &SamplingParams::repetition_penalty, 0.01, 100},
    {"repeat_last_n", kBoth, &SamplingParams::repeat_last_n, -1, kIntMax},
    {"frequency_penalty", kBoth, &SamplingParams::frequency_penalty, -2, 2},
    {"presence_penalty", kBoth, &SamplingParams::presence_penalty, -2, 2},
    {"logit_bias", kBoth, read_logit_bias},
    {"seed", kBoth, read_seed},
    {"stop", kBoth, read_stop},
    {"stop_token_ids", kBoth, read_stop_token_ids},
    {"include_stop_str_in_output", kBoth, &SamplingParams::include_stop_str_in_output},
    {"ignore_eos", kBoth, &SamplingParams::ignore_eos},
    {"min_tokens", kBoth, &SamplingParams::min_tokens, 0, kIntMax},
    {"logprobs", kBoth, read_logprobs},
    {"top_logprobs", kChat, read_top_logprobs},
    {"n", kBoth, &SamplingParams::n, 1, kMaxChoices},
    {"best_of", kBoth, read_best_of},
    {"stream", kBoth, &ApiRequest::stream},
    {"stream_options", kBoth, read_stream_options},
    {"echo", kCompletion, &ApiRequest::echo},
    {"add_special_tokens", kCompletion, &ApiRequest::add_special_tokens},
    {"return_tokens_as_token_ids", kBoth, &ApiRequest::return_tokens_as_token_ids},
    {"truncate_prompt_tokens", kBoth, read_truncate_prompt_tokens},
    {"add_generation_prompt", kChat, read_add_generation_prompt},
    {"continue_final_message", kChat, read_continue_final_message},
    {"chat_template_kwargs", kChat, read_template_kwargs},
    {"reasoning_effort", kChat, read_reasoning_effort},
    {"documents", kChat, read_documents},
};

constexpr std::string_view kOwnTemplate = "start the server with the template the model needs";
constexpr RefusedField kRefused[] = {
    {"tools", "[[]]", "tool calls are not supported yet"},
    {"tool_choice", R"(["none"])", "tool calls are not supported yet"},
    {"functions", "[[]]", "tool calls are not supported yet"},
    {"function_call", R"(["none"])", "tool calls are not supported yet"},
    {"response_format", R"([{"type": "text"}])", "structured output is not supported yet"},
    {"structured_outputs", "[{}]", "structured output is not supported yet"},
    {"guided_json", "[]", "structured output is not supported yet"},
    {"guided_regex", "[]", "structured output is not supported yet"},
    {"guided_choice", "[]", "structured output is not supported yet"},
    {"guided_grammar", "[]", "structured output is not supported yet"},
    {"guided_decoding_backend", "[]", "structured output is not supported yet"},
    {"guided_whitespace_pattern", "[]", "structured output is not supported yet"},
    {"grammar", R"([""])", "structured output is not supported yet"},
    {"json_schema", "[{}]", "structured output is not supported yet"},
    {"suffix", R"([""])", "text is completed at its end only"},
    {"prompt_logprobs", "[]", "only the answer's tokens have log-probabilities"},
    {"prompt_embeds", "[]", "give text or token ids"},
    {"use_beam_search", "[false]", ""},
    {"allowed_token_ids", "[]", "logit_bias can exclude tokens"},
    {"bad_words", "[[]]", "logit_bias can exclude tokens"},
    {"logits_processors", "[[]]", ""},
    {"vllm_xargs", "[{}]", ""},
    {"skip_special_tokens", "[true]", "special tokens are never part of the text"},
    {"return_token_ids", "[false]", "logprobs with return_tokens_as_token_ids names the tokens"},
    {"chat_template", R"([""])", kOwnTemplate},
    {"audio", "[]", "answers are text"},
    {"modalities", R"([["text"]])", "answers are text"},
    {"web_search_options", "[]", ""},
    {"mirostat", "[0]", ""},
    {"xtc_probability", "[0]", ""},
    {"dry_multiplier", "[0]", ""},
    {"dynatemp_range", "[0]", ""},
    {"top_n_sigma", "[-1, 0]", ""},
    {"top_a", "[0]", ""},
    {"tfs_z", "[1]", ""},
    {"samplers", "[]", "their order is fixed"},
    {"thinking", "[]", "chat_template_kwargs reaches the template"},
};

}  // namespace

std::span<const ApiField> api_fields() { return kFields; }
std::span<const RefusedField> refused_fields() { return kRefused; }

}  // namespace quire
