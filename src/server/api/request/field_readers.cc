#include "server/api/request/field_readers.h"

#include <algorithm>
#include <charconv>

#include "server/api/error.h"
#include "server/api/request/prompts.h"
#include "server/api/served_names.h"

namespace quire {
namespace {

constexpr size_t kMaxSaltBytes = 256;
constexpr size_t kMaxTextBytes = 64 << 10;  // most for all stop strings together, and for all bad words

// -1, as llama.cpp's and older clients send it: no limit.
int read_limit(const JsonField& field, int low) {
  const int64_t tokens = field.integer(-1, kIntMax);
  if (tokens == -1) return kIntMax;
  if (tokens < low) throw field.error("{} is outside [{}, {}]; -1 means no limit", tokens, low, kIntMax);
  return static_cast<int>(tokens);
}

// Keeps their tokens and tables small.
void bound_bytes(const std::vector<std::string>& texts, const JsonField& field) {
  size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();
  if (bytes > kMaxTextBytes) {
    throw field.error("has {} bytes in total, at most {} are allowed", bytes, kMaxTextBytes);
  }
}

// A text or several; in objects, the member `text`.
std::vector<std::string> read_texts(const JsonField& field) {
  const auto text_of = [](const JsonField& f) { return f.json().is_object() ? f.at("text").string() : f.string(); };
  if (!field.json().is_array()) return {text_of(field)};
  if (field.size() == 0) throw field.error("must not be empty");
  std::vector<std::string> texts;
  for (const JsonField& element : field.elements(kMaxPrompts)) texts.push_back(text_of(element));
  return texts;
}

}  // namespace

bool is_served(const ApiLimits& limits, std::string_view name) {
  return has_name(limits.models, limits.model_prefixes, name);
}

void read_model(ApiDraft& draft, const JsonField& field) {
  draft.model = field.string();
  if (is_served(draft.limits, draft.model)) return;
  throw ApiError(
      404,
      fmt::format("the model {} is not served here; GET /v1/models lists the served models", describe(field.json())),
      "invalid_request_error", "model", "model_not_found");
}

void read_max_tokens(ApiDraft& draft, const JsonField& field) { draft.sampling.max_tokens = read_limit(field, 0); }

// For APIs that cannot return the prompt: an answer without a token would be empty.
void read_max_answer_tokens(ApiDraft& draft, const JsonField& field) {
  draft.sampling.max_tokens = static_cast<int>(field.integer(1, kIntMax));
}

void read_max_output_tokens(ApiDraft& draft, const JsonField& field) {
  draft.sampling.max_tokens = read_limit(field, 1);
}

void read_max_completion_tokens(ApiDraft& draft, const JsonField& field) {
  draft.max_completion_tokens = read_limit(field, 1);
}

void read_seed(ApiDraft& draft, const JsonField& field) {
  const bool is_unsigned = field.json().is_number_unsigned();
  const int64_t number = is_unsigned ? 0 : field.integer(INT64_MIN, INT64_MAX);
  if (number == -1) return;  // the server draws one, as vLLM and llama.cpp do
  draft.has_seed = true;
  draft.sampling.seed = is_unsigned ? field.as<uint64_t>() : static_cast<uint64_t>(number);
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
  if (field.json() == "") return;  // none
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

void read_breakers(ApiDraft& draft, const JsonField& field) {
  draft.sampling.dry_sequence_breakers.clear();
  for (const JsonField& element : field.elements(kMaxBreakers)) {
    const std::string& breaker = element.string();
    if (breaker.empty()) throw element.error("a sequence breaker must not be empty");
    if (breaker.size() > kMaxBreakerBytes)
      throw element.error("a sequence breaker has {} bytes, at most {} are allowed", breaker.size(), kMaxBreakerBytes);
    draft.sampling.dry_sequence_breakers.push_back(breaker);
  }
}

// llama.cpp's [[id, bias], …], where a bias of false bans the token.
void read_bias_pairs(ApiDraft& draft, const JsonField& field) {
  for (const JsonField& pair : field.elements(static_cast<size_t>(draft.limits.vocab_size))) {
    if (!pair.json().is_array() || pair.size() != 2)
      throw pair.error("expected [token id, bias], found {}", describe(pair.json()));
    if (pair.at(size_t{0}).json().is_string())
      throw pair.at(size_t{0}).error("a text is not supported; give token ids, which POST /tokenize finds");
    const auto id = static_cast<TokenId>(pair.at(size_t{0}).integer(0, draft.limits.vocab_size - 1));
    const JsonField bias = pair.at(size_t{1});
    const bool banned = bias.json() == false;
    draft.sampling.logit_bias.emplace_back(
        id, banned ? -std::numeric_limits<float>::infinity() : static_cast<float>(bias.number(-100, 100)));
  }
}

void read_logit_bias(ApiDraft& draft, const JsonField& field) {
  if (field.json().is_array()) return read_bias_pairs(draft, field);
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

void read_logprobs(ApiDraft& draft, const JsonField& field) { draft.logprobs = field.boolean(); }

void read_store(ApiDraft& draft, const JsonField& field) {
  if (field.boolean()) draft.without_effect.emplace_back("store");  // the response says "store": false
}

void read_top_logprobs(ApiDraft& draft, const JsonField& field) {
  draft.top_logprobs = static_cast<int>(field.integer(0, kMaxLogprobs));
}

void read_best_of(ApiDraft& draft, const JsonField& field) {
  draft.best_of = static_cast<int>(field.integer(1, kMaxChoices));
}

// Without stream, these have nothing to act on.
void read_stream_options(ApiDraft& draft, const JsonField& field) {
  for (const auto& [key, option] : field.members()) {
    if (option.json().is_null()) continue;
    if (key == "include_usage") {
      draft.include_usage = option.boolean();
    } else if (key == "continuous_usage_stats") {
      draft.continuous_usage_stats = option.boolean();
    } else if (key != "include_obfuscation" || option.boolean()) {
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

void read_template_kwargs(ApiDraft& draft, const JsonField& field) {
  for (const std::string_view name : {"messages", "tools"}) {
    if (const auto value = field.object().find(name)) throw value->error("is not allowed here; send it as {}", name);
  }
  draft.chat.kwargs.update(field.json());
}

// Variables whose meaning is up to the template, as in vLLM; chat_template_kwargs wins.
void set_thinking(ApiDraft& draft, bool think) {
  draft.chat.kwargs.emplace("enable_thinking", think);
  draft.chat.kwargs.emplace("thinking", think);
}
void set_effort(ApiDraft& draft, const std::string& effort) {
  draft.chat.kwargs.emplace("reasoning_effort", effort);
  if (effort == "none") set_thinking(draft, false);
}
void read_reasoning_effort(ApiDraft& draft, const JsonField& field) { set_effort(draft, field.string()); }
void read_enable_thinking(ApiDraft& draft, const JsonField& field) { set_thinking(draft, field.boolean()); }
void read_max_reasoning_tokens(ApiDraft& draft, const JsonField& field) {
  draft.max_reasoning_tokens = static_cast<int>(field.integer(0, kIntMax));
}
void read_verbosity(ApiDraft& draft, const JsonField& field) { draft.chat.kwargs.emplace("verbosity", field.string()); }

void read_parse_special(ApiDraft& draft, const JsonField& field) { draft.parse_special = field.boolean(); }

void read_documents(ApiDraft& draft, const JsonField& field) {
  for (const JsonField& document : field.elements(1024)) document.object();
  draft.chat.documents = field.json();
}

void read_truncate_prompt_tokens(ApiDraft& draft, const JsonField& field) {
  const int64_t tokens = field.integer(-1, kIntMax);
  if (tokens == 0)
    throw field.error("0 would leave no prompt; allowed are -1 (what fits the model) and positive numbers");
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
  static constexpr std::pair<std::string_view, Pooling> kPoolings[] = {
      {"mean", Pooling::kMean}, {"last", Pooling::kLast}, {"cls", Pooling::kFirst}};
  const auto* known = std::ranges::find(kPoolings, field.string(), &std::pair<std::string_view, Pooling>::first);
  if (known == std::end(kPoolings))
    throw field.error("{} is not supported; allowed: \"mean\", \"last\", \"cls\"", describe(field.json()));
  draft.pooling = known->second;
}

void read_query(ApiDraft& draft, const JsonField& field) { draft.queries = {field.string()}; }
void read_queries(ApiDraft& draft, const JsonField& field) { draft.queries = read_texts(field); }
void read_scored_documents(ApiDraft& draft, const JsonField& field) { draft.documents = read_texts(field); }
void read_top_n(ApiDraft& draft, const JsonField& field) { draft.top_n = static_cast<int>(field.integer(0, kIntMax)); }

void read_encoding_format(ApiDraft& draft, const JsonField& field) {
  const std::string& format = field.string();
  if (format != "float" && format != "base64") {
    throw field.error("{} is not supported; allowed: \"float\", \"base64\"", describe(field.json()));
  }
  draft.base64 = format == "base64";
}

void read_dimensions(ApiDraft& draft, const JsonField& field) {
  const int64_t dimensions = field.integer(1, kIntMax);
  if (dimensions == draft.limits.embedding_size) return;
  throw field.error("{} is not supported; this model's vectors have {}", dimensions, draft.limits.embedding_size);
}

}  // namespace quire
