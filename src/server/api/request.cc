#include "server/api/request.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "json/empty_objects.h"
#include "server/api/error.h"
#include "server/api/fields.h"
#include "server/api/tools.h"
#include "server/endpoints/infill.h"
#include "server/endpoints/llama.h"
#include "server/endpoints/ollama.h"
#include "server/endpoints/responses.h"

namespace quire {
namespace {

constexpr int kCompletionMaxTokens = 16;  // OpenAI's default for /v1/completions

// The row of this API, or else the first one of another.
const ApiField* find_field(std::string_view name, Api api) {
  const ApiField* found = nullptr;
  for (const ApiField& field : api_fields()) {
    if (field.name != name) continue;
    if (is_of(field, api)) return &field;
    if (!found) found = &field;
  }
  return found;
}

const RefusedField* find_refused(std::string_view name, Api api) {
  const auto fits = [&](const RefusedField& f) { return f.name == name && (f.apis & bits(api)); };
  const auto found = std::ranges::find_if(refused_fields(), fits);
  return found == refused_fields().end() ? nullptr : &*found;
}

// The first API that has the field.
std::string_view path_of(const ApiField& field) {
  const auto found = std::ranges::find_if(api_list(), [&](const ApiInfo& info) { return is_of(field, info.api); });
  return found == api_list().end() ? "options of /api/chat" : found->path;
}

bool is_ollama(Api api) {
  return api == Api::kOllamaChat || api == Api::kOllamaGenerate || api == Api::kOllamaEmbed ||
         api == Api::kOllamaEmbeddings;
}

// For a field that only other APIs have.
ApiError foreign_field(const ApiField& field, Api api, const std::string& path) {
  if (api == Api::kOllamaOptions) return bad_request(path, "is none of Ollama's options; {} takes it", path_of(field));
  if (is_ollama(api) && is_of(field, Api::kOllamaOptions)) return bad_request(path, "belongs into options");
  return bad_request(path, "is not a parameter of {}; {} takes it", api_info(api).path, path_of(field));
}

void read_sampling_parameter(SamplingParams& sampling, const SamplingParameter& parameter, const JsonField& value) {
  std::visit(
      [&](auto member) {
        using Member = decltype(member);
        if constexpr (std::is_same_v<Member, float SamplingParams::*>) {
          sampling.*member = static_cast<float>(value.number(parameter.low, parameter.high));
        } else if constexpr (std::is_same_v<Member, int SamplingParams::*>) {
          sampling.*member = static_cast<int>(
              value.integer(static_cast<int64_t>(parameter.low), static_cast<int64_t>(parameter.high)));
        } else {
          sampling.*member = value.boolean();
        }
      },
      parameter.member);
}

void read_field(ApiDraft& draft, const ApiField& field, const JsonField& value) {
  std::visit(
      [&](auto read) {
        using Read = decltype(read);
        if constexpr (std::is_same_v<Read, ReadField>) {
          read(draft, value);
        } else if constexpr (std::is_same_v<Read, const SamplingParameter*>) {
          read_sampling_parameter(draft.sampling, *read, value);
        } else if constexpr (std::is_same_v<Read, int Request::*>) {
          draft.*read = static_cast<int>(value.integer(-kMaxCount, kMaxCount));
        } else {
          draft.*read = value.boolean();
        }
      },
      field.read);
}

void refuse(const RefusedField& field, const JsonField& value) {
  for (const Json& neutral : Json::parse(field.neutral)) {
    if (value.json() == neutral) return;
  }
  throw bad_request(value.path(), "is not supported{}{}", field.advice.empty() ? "" : ": ", field.advice);
}

void settle_prompt_logprobs(ApiDraft& draft) {
  SamplingParams& sampling = draft.sampling;
  if (draft.prompt_logprobs && draft.stream)
    throw bad_request("prompt_logprobs", "cannot be combined with stream: true");
  if (draft.echo && sampling.logprobs) {
    if (draft.prompt_logprobs && sampling.prompt_logprobs != sampling.logprobs) {
      throw bad_request("prompt_logprobs", "{} must equal logprobs, {}, when echo is true", *sampling.prompt_logprobs,
                        *sampling.logprobs);
    }
    if (draft.stream && sampling.n > 1)
      throw bad_request("echo", "with logprobs and n cannot be combined with stream: true");
    sampling.prompt_logprobs = sampling.logprobs;
  }
  if (sampling.max_tokens == 0) {
    const bool fills_cache =
        draft.api == Api::kInfill || draft.api == Api::kLlamaCompletion;  // as editors ask for, before anybody types
    if (!draft.echo && !sampling.prompt_logprobs && !fills_cache) {
      throw bad_request("max_tokens", "0 is allowed only with echo or prompt_logprobs");
    }
    if (!sampling.prompt_logprobs) sampling.prompt_logprobs = 0;  // the engine needs something to return
  }
}

void settle_chat(ApiDraft& draft) {
  if (draft.instructions) {
    auto& messages = draft.chat.messages;
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", *draft.instructions}});
  }
  if (draft.chat.continue_final_message && draft.add_generation_prompt.value_or(false)) {
    throw bad_request("continue_final_message", "cannot be combined with add_generation_prompt: true");
  }
  draft.chat.parse_special = draft.parse_special.value_or(false);
  draft.chat.add_generation_prompt = draft.add_generation_prompt.value_or(!draft.chat.continue_final_message);
}

// /v1/score takes each list under either of two names, so neither field is required by itself.
void check_pairs(const ApiDraft& draft) {
  if (draft.api != Api::kScore) return;
  if (draft.queries.empty()) throw bad_request("text_1", "is required");
  if (draft.documents.empty()) throw bad_request("text_2", "is required");
  if (draft.queries.size() != 1 && draft.queries.size() != draft.documents.size()) {
    throw bad_request("text_1", "{} texts cannot be compared with {}; give one for all, or as many",
                      draft.queries.size(), draft.documents.size());
  }
}

void require_fields(const ApiDraft& draft) {
  for (const ApiField& field : api_fields()) {
    if (!is_of(field, draft.api) || !is_required(field, draft.api)) continue;
    const bool given = field.name == "max_tokens"     ? draft.sampling.max_tokens.has_value()
                       : field.name == "input_suffix" ? draft.suffix.has_value()
                       : field.name == "query"        ? !draft.queries.empty()
                       : draft.api == Api::kRerank    ? !draft.documents.empty()
                                                      : draft.has_messages || draft.has_prompt;
    if (!given) throw bad_request(field.name, "is required");
  }
  if (draft.api == Api::kTokenize && (draft.has_messages == draft.has_prompt || draft.prompts.size() > 1)) {
    throw bad_request("prompt", "give one of prompt, content and messages");
  }
}

// Checks and derives everything that depends on several fields.
void settle(ApiDraft& draft) {
  SamplingParams& sampling = draft.sampling;
  require_fields(draft);
  settle_ollama(draft);
  settle_infill(draft);
  settle_llama(draft);
  if (draft.model.empty() && !draft.limits.models.empty()) draft.model = draft.limits.models.front();
  if (draft.max_completion_tokens) sampling.max_tokens = draft.max_completion_tokens;
  if (draft.api == Api::kCompletion && !sampling.max_tokens) sampling.max_tokens = kCompletionMaxTokens;
  if (sampling.max_tokens && sampling.min_tokens > *sampling.max_tokens) {
    throw bad_request("min_tokens", "{} is above max_tokens, {}", sampling.min_tokens, *sampling.max_tokens);
  }
  if (draft.best_of && *draft.best_of != sampling.n) {
    throw bad_request("best_of", "{} is not supported; it must equal n, {}", *draft.best_of, sampling.n);
  }
  if (std::cmp_greater(draft.prompts.size() * static_cast<size_t>(sampling.n), kMaxPrompts)) {
    throw bad_request("n", "{} answers to each of {} prompts are too many; at most {} in total are allowed", sampling.n,
                      draft.prompts.size(), kMaxPrompts);
  }
  if (draft.top_logprobs.value_or(0) > 0 && !draft.logprobs) {
    throw bad_request("top_logprobs", "needs {}",
                      draft.api == Api::kResponse || draft.api == Api::kCountInput
                          ? R"(include: ["message.output_text.logprobs"])"
                          : "logprobs: true");
  }
  if (draft.logprobs) sampling.logprobs = draft.top_logprobs.value_or(0);
  const bool embeds =
      draft.api == Api::kEmbedding || draft.api == Api::kOllamaEmbed || draft.api == Api::kOllamaEmbeddings;
  const bool scores = draft.api == Api::kRerank || draft.api == Api::kScore;
  if ((embeds || scores) && draft.pooling == Pooling::kNone)
    draft.pooling = draft.limits.pooling != Pooling::kNone ? draft.limits.pooling : Pooling::kMean;
  check_pairs(draft);
  settle_prompt_logprobs(draft);
  settle_tools(draft);
  settle_chat(draft);
}

// null, false, "", [] and {}
bool means_none(const Json& value) { return value == false || value == "" || (value.is_structured() && value.empty()); }

}  // namespace

void add_note(ApiRequest& request, std::string note) {
  constexpr size_t kMostNotes = 64;
  if (request.notes.size() == kMostNotes || std::ranges::find(request.notes, note) != request.notes.end()) return;
  request.notes.push_back(std::move(note));
}

void read_parameter(ApiDraft& draft, Api api, std::string_view name, const JsonField& value) {
  if (value.json().is_null()) return;  // as if it were absent
  if (const RefusedField* refused = find_refused(name, api)) return refuse(*refused, value);
  const ApiField* field = find_field(name, api);
  if (field && !is_of(*field, api)) throw foreign_field(*field, api, value.path());
  if (is_empty_list(value.json()) && (!field || takes_object(*field))) return;  // PHP's empty object
  if (!field && constrains(name, api) && !means_none(value.json())) {
    throw bad_request(value.path(),
                      "is not supported; use response_format, json_schema, regex, grammar or "
                      "structured_outputs (docs/structured-output.md)");
  }
  if (api == Api::kResponse && is_repeated(name)) draft.as_sent[std::string(name)] = value.json();
  if (field) {
    read_field(draft, *field, value);
  } else {
    draft.without_effect.push_back((api == Api::kOllamaOptions ? "options." : "") + std::string(name));
  }
}

ApiRequest parse_api_request(Api api, std::string_view body, const ApiLimits& limits) try {
  const auto document = JsonField::parse(body, "", {.values = kMaxBodyValues, .replace_surrogates = true});
  if (!document.json().is_object()) {
    throw bad_request({}, "the body must be a JSON object, found {}", describe(document.json()));
  }
  ApiDraft draft;
  draft.api = api;
  draft.limits = limits;
  apply_defaults(draft.sampling, limits.sampling);
  draft.stream = api == Api::kOllamaChat || api == Api::kOllamaGenerate;  // Ollama's defaults
  draft.truncate_end = api == Api::kOllamaEmbed || api == Api::kOllamaEmbeddings;
  for (const auto& [name, value] : document.members()) read_parameter(draft, api, name, value);
  settle(draft);
  return std::move(static_cast<ApiRequest&>(draft));
} catch (const JsonError& e) {
  throw ApiError(400, e.what(), "invalid_request_error", e.field());
}

}  // namespace quire
