// From a request's body to the work of the engine.
#include <algorithm>
#include <utility>

#include "server/api/request/bounds.h"
#include "server/api/service.h"

namespace quire {
namespace {

std::string_view prompt_field(const ApiRequest& request) {
  if (!request.api->prompt_field.empty()) return request.api->prompt_field;
  return request.prompts.empty() ? "messages" : "prompt";
}

void require_fit(const ApiRequest& request, size_t prompt_tokens, const ModelInfo& model) {
  if (prompt_tokens == 0) throw bad_request(prompt_field(request), "is empty; the model needs at least one token");
  const int most = longest_prompt(request, model);
  if (std::cmp_less_equal(prompt_tokens, most)) return;
  const std::string field(prompt_field(request));
  const bool no_room = std::cmp_equal(prompt_tokens, model.max_model_len);  // it would fit without an answer
  // Clients know this error by its words, and shorten the conversation.
  const std::string message =
      request.api->errors == ErrorShape::kAnthropic
          ? fmt::format("prompt is too long: {} tokens > {} maximum", prompt_tokens,
                        no_room ? most : model.max_model_len)
          : fmt::format(
                "This model's maximum context length is {} tokens. However, your {} resulted in {} tokens{}. "
                "Please reduce the length of the {}.",
                model.max_model_len, field, prompt_tokens, no_room ? ", which leaves no room for an answer" : "",
                field);
  throw ApiError(400, message, "invalid_request_error", field, "context_length_exceeded");
}

// Lets forced calls of tools that are not strict have any object as arguments: of those tools whose schema cannot be
// followed, or of all of them if the schemas are only too much together. Returns whether that changes anything.
bool loosen_tools(ApiRequest& request, const ChatFormat& format, const ServedText& text) {
  const ToolChoice& choice = request.tool_choice;
  if (choice.kind != ToolChoice::kRequired && choice.kind != ToolChoice::kNamed) return false;
  if (!format.format().tools) return false;
  std::vector<ToolRule*> loose, all;
  for (const Json& tool : request.tools) {
    const auto& name = tool["function"]["name"].get_ref<const std::string&>();
    ToolRule& rule = *std::ranges::find(request.tool_rules, name, &ToolRule::name);
    if (rule.strict || (choice.kind == ToolChoice::kNamed && rule.name != choice.name)) continue;
    all.push_back(&rule);
    try {
      text.compile(format.arguments(tool, rule));
    } catch (const Error& e) {
      loose.push_back(&rule);
      add_note(request, fmt::format("calls of the tool {} may have any object as arguments: {}",
                                    describe(Json(rule.name)), e.what()));
    }
  }
  if (loose.empty()) {
    loose = all;
    add_note(request, "forced calls may have any object as arguments: their schemas are too much together");
  }
  for (ToolRule* rule : loose) rule->any_object = true;
  return !loose.empty();
}

// What the answer must match, if anything. `reading`: of a chat, how its answers are read; else null.
Constraint compile_constraint(ApiRequest& request, const AnswerReading* reading, const ChatFormat& format,
                              const ServedText& text) {
  note_work("compiling the grammar of the answer");
  const auto compile = [&]() -> Constraint {
    const auto source = request.prompts.empty() ? format.constraint(request, reading) : request.constraint_source;
    return source ? text.compile(*source) : nullptr;
  };
  try {
    try {
      return compile();
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::kResource || !loosen_tools(request, format, text)) throw;
      return compile();
    }
  } catch (const Error& e) {
    const std::string field = !request.constraint_field.empty() ? request.constraint_field : "tools";
    throw ApiError(400, e.what(), "invalid_request_error", field, "structured_output_refused");
  }
}

}  // namespace

Job Service::prepare(const ApiDefinition& api, JsonField body, const Tenant& tenant,
                     const std::vector<std::string>& aliases) {
  const std::vector<std::string> adapters = this->adapters();
  std::vector<std::string> served;
  ApiLimits limits = this->limits();
  if (!adapters.empty() || !aliases.empty()) {
    served = names();
    served.insert(served.end(), aliases.begin(), aliases.end());
    served.insert(served.end(), adapters.begin(), adapters.end());
    limits.models = served;
  }
  ApiRequest request = [&] {
    const JsonField read_once = std::move(body);  // its memory is free for what follows
    return parse_api_request(api, read_once, limits);
  }();
  log_once(request.without_effect);
  if (request.larger_context > 0) log_smaller_context(request.larger_context);
  log_notes(request.notes);
  if (api.reply) {
    const Places place = api.reply_computes ? admit(tenant.name, 1) : Places();
    if (auto reply = api.reply(*this, request))
      return {.answer = ready_answer(std::move(*reply)), .keep_alive = request.keep_alive};
  }
  for (const std::string_view asked : {std::string_view(request.model), untagged(request.model)}) {
    if (!names_.has(asked) && std::ranges::find(adapters, asked) != adapters.end()) request.adapter = asked;
  }
  require_generation(request);
  if (api.adapt) api.adapt(request, *this);
  if (request.prompts.empty()) prepare_chat(request);
  const auto keep_alive = request.keep_alive;
  Job job = generation(std::move(request), tenant);
  job.keep_alive = keep_alive;
  return job;
}

// What every request asks of the model. Endpoints that score texts check it themselves.
void Service::require_generation(const ApiRequest& request) const {
  if (!request.documents.empty()) return;
  if (request.pooling != Pooling::kNone && model().labels > 0)
    throw bad_request("model", "{} is a classifier; it has scores, but no embeddings{}", model().name,
                      model().labels == 1 ? ": use /v1/rerank" : "");
  if (request.pooling == Pooling::kNone && !model().generates)
    throw bad_request("model", "{} does not generate text; use {}", model().name,
                      model().labels > 0 ? "/v1/rerank or /v1/score" : "/v1/embeddings");
}

Places Service::admit(const std::string& tenant, int answers) {
  if (const int places = admission_->enter(tenant, answers)) return {admission_, tenant, places, answers};
  metrics_->request_rejected();
  ApiError full(
      429,
      fmt::format("the queue is full{}; at most {} answers may run and {} wait (--max-num-seqs, --max-queue); "
                  "try again later",
                  admission_->refusal(tenant), options_.max_running, options_.max_queue),
      "rate_limit_error", {}, "queue_full");
  full.retry_after = 1;
  throw full;
}

Job Service::generation(ApiRequest request, const Tenant& tenant) {
  const size_t prompts = request.prompts.empty() ? 1 : request.prompts.size();
  const int answers = static_cast<int>(prompts) * request.sampling.n;
  bound_parameters(request.sampling, answers);
  Job job{.completer = &completer_,
          .metrics = metrics_,
          .model = names().front(),
          .stream = request.stream,
          .choices = answers};
  job.places = admit(tenant.name, answers);  // before tokenizing, so that a refusal costs little

  const ModelInfo& model = this->model();
  const ApiDefinition& api = *request.api;
  ResponseHead head{.id = random_id(api.id_prefix),
                    .created = unix_seconds(),
                    .prompts = static_cast<int>(prompts),
                    .score = model.score};
  const std::vector<std::string> bad_words = std::exchange(request.sampling.bad_words, {});
  if (!bad_words.empty()) request.banned_runs = text().spellings(bad_words);  // once for all prompts
  if (!request.prompts.empty()) request.constraint = compile_constraint(request, nullptr, format_, text());
  if (request.suffix && !request.sampling.ignore_eos) {
    for (const TokenId id : text().infill_ends()) request.sampling.stop_token_ids.push_back(id);
  }
  request.tenant = tenant.name;
  request.tenant_priority = tenant.priority;
  for (size_t i = 0; i < prompts; ++i) {
    check_growth(job.requests);
    TokenIds ids = request.scores_pairs ? encode_pair(request, i) : encode(request, i);
    const auto keep = request.truncate_prompt_tokens;
    const bool truncated = keep && std::cmp_greater(ids.size(), *keep);
    if (truncated && request.truncate_end) {
      ids.resize(static_cast<size_t>(*keep));
    } else if (truncated) {
      ids.erase(ids.begin(), ids.end() - *keep);
    }
    require_fit(request, ids.size(), model);
    if (request.echo) {
      const auto* plain = std::get_if<std::string>(&request.prompts[i]);
      head.echo.push_back(plain && !truncated ? *plain : text().decode(ids));
    }
    if (request.prompts.empty()) {
      head.reading = format_.reading(request, ids);
      request.constraint = compile_constraint(request, head.reading.get(), format_, text());
      request.thought_budget = format_.thought_budget(request, head.reading.get());
    }
    request.frame_tokens = head.reading != nullptr;
    request.stop_finder = stop_finder(head.reading);
    if (request.return_token_ids) head.prompt_ids.push_back(ids);
    head.prompt_tokens += static_cast<int>(ids.size());
    Request& made = job.requests.emplace_back(request);
    made.prompt = std::move(ids);
    if (!request.has_seed) made.sampling.seed = random_u64();
  }
  log_notes(request.notes);
  request.prompts.clear();
  request.infill_files.clear();
  request.chat = {};
  head.request = std::move(request);
  bound_response(head, model.max_model_len, options_.max_extra_bytes, job.requests);
  job.prompt_bytes = prompt_output_bytes(job.requests, model.embedding_size);
  job.answer = api.answer(std::move(head), [&served = text()](TokenId id) { return served.token_bytes(id); });
  return job;
}

TokenIds Service::encode_pair(ApiRequest& request, size_t index) const {
  note_work("tokenizing the text of number {}", index);
  const std::string& query = request.queries[request.queries.size() > 1 ? index : 0];
  const auto most = static_cast<size_t>(request.truncate_prompt_tokens.value_or(0));
  TokenPair pair = text().encode_pair(query, request.documents[index], most);
  request.second_text = pair.second;
  return std::move(pair.ids);
}

TokenIds Service::encode(const ApiRequest& request, size_t index) const {
  if (request.prompts.empty()) {
    note_work("rendering and tokenizing the chat");
    return text().encode_chat(request.chat);
  }
  note_work("tokenizing the text of number {}", index);
  const Prompt& prompt = request.prompts[index];
  if (request.suffix) {
    return text().encode_infill({.prefix = std::get<std::string>(prompt),
                                 .suffix = *request.suffix,
                                 .files = request.infill_files,
                                 .add_bos = request.add_special_tokens});
  }
  if (const auto* ids = std::get_if<TokenIds>(&prompt)) return *ids;
  const EncodeOptions options{.add_special = request.add_special_tokens,
                              .parse_special = request.parse_special.value_or(true)};
  if (const auto* plain = std::get_if<std::string>(&prompt)) return text().encode(*plain, options);
  TokenIds all;
  for (const PromptPiece& piece : std::get<MixedPrompt>(prompt)) {
    const auto* plain = std::get_if<std::string>(&piece);
    const TokenIds ids = plain ? text().encode(*plain, {.add_special = options.add_special && all.empty(),
                                                        .parse_special = options.parse_special})
                               : std::get<TokenIds>(piece);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return all;
}

}  // namespace quire
