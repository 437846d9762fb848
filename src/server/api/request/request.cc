#include "server/api/request/request.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "json/empty_objects.h"
#include "server/api/definition.h"
#include "server/api/error.h"
#include "server/api/request/fields.h"
#include "server/api/request/tools.h"

namespace quire {
namespace {

const RefusedField* find_refused(std::string_view name, const ApiDefinition& api) {
  const auto found = std::ranges::find(api.refused, name, &RefusedField::name);
  return found == api.refused.end() ? nullptr : &*found;
}

// The first endpoint that has the field; empty: none has. A map, because a body can have a million unknown fields.
std::string owner_of(std::string_view name) {
  static const std::unordered_map<std::string_view, std::string> owners = [] {
    std::unordered_map<std::string_view, std::string> map;
    for (const ApiDefinition* api : all_apis()) {
      for (const ApiField& field : api->fields) map.emplace(field.name, api->path);
    }
    for (const ApiDefinition* api : all_apis()) {
      if (!api->options) continue;
      for (const ApiField& field : api->options->fields)
        map.emplace(field.name, fmt::format("options of {}", api->path));
    }
    return map;
  }();
  const auto found = owners.find(name);
  return found == owners.end() ? std::string() : found->second;
}

// For a field that only other endpoints have.
ApiError foreign_field(std::string_view name, const std::string& owner, const ApiDefinition& api,
                       const std::string& path) {
  if (api.path.empty()) return bad_request(path, "is none of the options; {} takes it", owner);
  if (api.options && find_field(*api.options, name)) return bad_request(path, "belongs into options");
  return bad_request(path, "is not a parameter of {}; {} takes it", api.path, owner);
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
    if (!draft.echo && !sampling.prompt_logprobs && !draft.api->fills_cache) {
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

void require_fields(const ApiDraft& draft) {
  for (const std::string_view name : draft.api->required) {
    if (std::ranges::find(draft.given, name) == draft.given.end()) throw bad_request(name, "is required");
  }
}

// Checks and derives everything that depends on several fields.
void settle(ApiDraft& draft) {
  SamplingParams& sampling = draft.sampling;
  require_fields(draft);
  if (draft.api->settle) draft.api->settle(draft);
  if (draft.model.empty() && !draft.limits.models.empty()) draft.model = draft.limits.models.front();
  if (draft.max_completion_tokens) sampling.max_tokens = draft.max_completion_tokens;
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
    throw bad_request("top_logprobs", "needs logprobs: true");
  }
  if (draft.logprobs) sampling.logprobs = draft.top_logprobs.value_or(0);
  settle_prompt_logprobs(draft);
  settle_tools(draft);
  settle_chat(draft);
}

// Of each kind, so many of a request are kept: enough for the log.
constexpr size_t kMostNotes = 64;

// null, false, "", [] and {}
bool means_none(const Json& value) { return value == false || value == "" || (value.is_structured() && value.empty()); }

}  // namespace

void add_note(ApiRequest& request, std::string note) {
  if (request.notes.size() == kMostNotes || std::ranges::find(request.notes, note) != request.notes.end()) return;
  request.notes.push_back(std::move(note));
}

void settle_pooling(ApiDraft& draft) {
  if (draft.pooling != Pooling::kNone) return;
  draft.pooling = draft.limits.pooling != Pooling::kNone ? draft.limits.pooling : Pooling::kMean;
}

void read_parameter(ApiDraft& draft, const ApiDefinition& api, std::string_view name, const JsonField& value) {
  if (value.json().is_null()) return;  // as if it were absent
  if (const RefusedField* refused = find_refused(name, api)) return refuse(*refused, value);
  const ApiField* field = find_field(api, name);
  const std::string owner = field ? "" : owner_of(name);
  if (!owner.empty()) throw foreign_field(name, owner, api, value.path());
  if (is_empty_list(value.json()) && (!field || takes_object(*field))) return;  // PHP's empty object
  if (!field && constrains(name, api) && !means_none(value.json())) {
    throw bad_request(value.path(),
                      "is not supported; use response_format, json_schema, regex, grammar or "
                      "structured_outputs (docs/structured-output.md)");
  }
  if (api.repeats && api.repeats(name)) draft.as_sent[std::string(name)] = value.json();
  if (field) {
    read_field(draft, *field, value);
    draft.given.push_back(field->name);
  } else if (draft.without_effect.size() < kMostNotes) {  // path() searches the body
    draft.without_effect.push_back(value.path());
  }
}

JsonField parse_body(std::string_view text) try {
  JsonField body = JsonField::parse(text, "", {.values = kMaxBodyValues, .replace_surrogates = true});
  if (!body.json().is_object()) {
    throw bad_request({}, "the body must be a JSON object, found {}", describe(body.json()));
  }
  return body;
} catch (const JsonError& e) {
  throw ApiError(400, e.what(), "invalid_request_error", e.field());
}

ApiRequest parse_api_request(const ApiDefinition& api, const JsonField& body, const ApiLimits& limits) try {
  ApiDraft draft;
  draft.api = &api;
  draft.limits = limits;
  apply_defaults(draft.sampling, limits.sampling);
  if (api.begin) api.begin(draft);
  for (const auto& [name, value] : body.members()) read_parameter(draft, api, name, value);
  settle(draft);
  return std::move(static_cast<ApiRequest&>(draft));
} catch (const JsonError& e) {
  throw ApiError(400, e.what(), "invalid_request_error", e.field());
}

ApiRequest parse_api_request(const ApiDefinition& api, std::string_view body, const ApiLimits& limits) {
  return parse_api_request(api, parse_body(body), limits);
}

}  // namespace quire
