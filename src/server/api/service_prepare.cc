// From a request's body to the work of the engine.
#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "server/api/bounds.h"
#include "server/api/service.h"

namespace quire {
namespace {

std::string_view id_prefix(Api api) {
  switch (api) {
    case Api::kChat:
      return "chatcmpl-";
    case Api::kResponse:
      return "resp_";
    case Api::kMessage:
      return "msg_";
    case Api::kRerank:
      return "rerank-";
    case Api::kScore:
      return "score-";
    case Api::kEmbedding:
      return "embd-";
    default:
      return "cmpl-";
  }
}

std::string_view prompt_field(const ApiRequest& request) {
  switch (request.api) {
    case Api::kResponse:
    case Api::kCountInput:
    case Api::kEmbedding:
    case Api::kOllamaEmbed:
      return "input";
    case Api::kRerank:
    case Api::kScore:
      return "documents";
    case Api::kInfill:
      return "input_prefix";
    case Api::kOllamaGenerate:
      return "prompt";
    default:
      return request.prompts.empty() ? "messages" : "prompt";
  }
}

void require_fit(const ApiRequest& request, size_t prompt_tokens, const ModelInfo& model) {
  if (prompt_tokens == 0) throw bad_request(prompt_field(request), "is empty; the model needs at least one token");
  const int most = longest_prompt(request, model);
  if (std::cmp_less_equal(prompt_tokens, most)) return;
  const std::string field(prompt_field(request));
  const bool no_room = std::cmp_equal(prompt_tokens, model.max_model_len);  // it would fit without an answer
  // Clients know this error by its words, and shorten the conversation.
  const std::string message =
      request.api == Api::kMessage
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
bool loosen_tools(ApiRequest& request, const ChatFormat& format, const Completer& completer) {
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
      completer.compile(format.arguments(tool, rule));
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
                              const Completer& completer) {
  note_work("compiling the grammar of the answer");
  const auto compile = [&]() -> Constraint {
    const auto source = request.prompts.empty() ? format.constraint(request, reading) : request.constraint_source;
    return source ? completer.compile(*source) : nullptr;
  };
  try {
    try {
      return compile();
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::kResource || !loosen_tools(request, format, completer)) throw;
      return compile();
    }
  } catch (const Error& e) {
    const std::string field = !request.constraint_field.empty() ? request.constraint_field : "tools";
    throw ApiError(400, e.what(), "invalid_request_error", field, "structured_output_refused");
  }
}

// Requests that the vocabulary alone answers.
bool of_tokens(Api api) {
  return api == Api::kTokenize || api == Api::kDetokenize || api == Api::kCountTokens || api == Api::kCountInput ||
         api == Api::kApplyTemplate;
}

// A classifier reads each query with its document; a model for embeddings reads all of them alone.
void settle_scores(ApiRequest& request, const ModelInfo& model) {
  const bool has_scores = model.labels == 1 || model.score == Score::kYesNo;
  if (!has_scores && (model.labels > 0 || model.pooling == Pooling::kNone)) {
    throw bad_request("model", "{} does not score texts; serve a cross-encoder, Qwen3-Reranker or an embedding model",
                      model.name);
  }
  request.scores_pairs = has_scores;
  if (!request.scores_pairs) request.prompts.assign(request.queries.begin(), request.queries.end());
  request.prompts.insert(request.prompts.end(), request.documents.begin(), request.documents.end());
  if (request.prompts.size() > kMaxPrompts)
    throw bad_request("documents", "{} texts are too many; at most {} are allowed", request.prompts.size(),
                      kMaxPrompts);
}

}  // namespace

Job Service::prepare(Api api, std::string_view body, const Tenant& tenant, WorkingMemory& memory) {
  try {
    const WorkingIn counted(&memory);
    Job job = prepare(api, body, tenant);
    job.bytes = memory.held();
    return job;
  } catch (const WorkingMemoryExceeded&) {
    throw ApiError(413,
                   fmt::format("{} takes more than {} KiB of memory; send less in one request, or raise "
                               "--request-memory",
                               memory.doing(), memory.limit() >> 10),
                   "invalid_request_error", {}, "request_too_large");
  } catch (...) {
    throw current_api_error();
  }
}

Job Service::prepare(Api api, std::string_view body, const Tenant& tenant) {
  note_work("reading the body");
  ApiRequest request = parse_api_request(api, body, limits());
  log_once(request.without_effect);
  if (request.larger_context > 0) log_smaller_context(request.larger_context);
  log_notes(request.notes);
  if (api == Api::kOllamaShow) return {.answer = ready_answer(dump(ollama_show_json(ollama_model())))};
  if (request.only_loads) return {.answer = ready_answer(dump(ollama_loaded_json(request)))};
  settle_for_model(request);
  if (request.prompts.empty()) {
    if (!request.tools.is_null() && format_.describes_tools()) log_described_tools();
    format_.prepare(request);
  }
  switch (api) {
    case Api::kTokenize:
      return tokenization(request);
    case Api::kDetokenize:
      return detokenization(request);
    case Api::kApplyTemplate:
      return {.answer = ready_answer(dump({{"prompt", completer_.render_chat(request.chat)}}))};
    case Api::kCountTokens:
      return {.answer = ready_answer(dump({{"input_tokens", encode(request, 0).size()}}))};
    case Api::kCountInput:
      return {.answer = ready_answer(
                  dump({{"object", "response.input_tokens"}, {"input_tokens", encode(request, 0).size()}}))};
    default:
      return generation(std::move(request), tenant);
  }
}

// What a request asks of the model, rather than of the server.
void Service::settle_for_model(ApiRequest& request) const {
  const ModelInfo& model = completer_.info();
  if (request.api == Api::kRerank || request.api == Api::kScore) return settle_scores(request, model);
  if (request.pooling != Pooling::kNone && model.labels > 0)
    throw bad_request("model", "{} is a classifier; it has scores, but no embeddings{}", model.name,
                      model.labels == 1 ? ": use /v1/rerank" : "");
  if (request.pooling == Pooling::kNone && !model.generates && !of_tokens(request.api))
    throw bad_request("model", "{} does not generate text; use {}", model.name,
                      model.labels > 0 ? "/v1/rerank or /v1/score" : "/v1/embeddings");
  if (request.think && !format_.format().reasoning) {
    throw bad_request("think", "this model does not think before it answers; leave think out");
  }
  if (request.suffix && !completer_.can_infill()) {
    throw bad_request(request.api == Api::kInfill ? "input_suffix" : "suffix",
                      "this model cannot fill in the middle: its vocabulary has no tokens for it");
  }
  const bool templated = request.api == Api::kOllamaGenerate && request.prompts.empty();
  if (templated && completer_.chat_template_source().empty()) use_plain_prompt(request);
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
  Job job{.stream = request.stream, .choices = answers};
  job.places = admit(tenant.name, answers);  // before tokenizing, so that a refusal costs little

  const ModelInfo& model = completer_.info();
  ResponseHead head{.id = random_id(id_prefix(request.api)),
                    .created = unix_seconds(),
                    .prompts = static_cast<int>(prompts),
                    .score = model.score};
  const std::vector<std::string> bad_words = std::exchange(request.sampling.bad_words, {});
  if (!bad_words.empty()) request.banned_runs = completer_.spellings(bad_words);  // once for all prompts
  if (!request.prompts.empty()) request.constraint = compile_constraint(request, nullptr, format_, completer_);
  if (request.suffix && !request.sampling.ignore_eos) {
    for (const TokenId id : completer_.infill_ends()) request.sampling.stop_token_ids.push_back(id);
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
      const auto* text = std::get_if<std::string>(&request.prompts[i]);
      head.echo.push_back(text && !truncated ? *text : completer_.decode(ids));
    }
    if (request.prompts.empty()) {
      head.reading = format_.reading(request, ids);
      request.constraint = compile_constraint(request, head.reading.get(), format_, completer_);
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
  job.answer =
      make_answer(std::move(head), [&completer = completer_](TokenId id) { return completer.token_bytes(id); });
  return job;
}

TokenIds Service::encode_pair(ApiRequest& request, size_t index) const {
  note_work("tokenizing the text of number {}", index);
  const std::string& query = request.queries[request.queries.size() > 1 ? index : 0];
  const auto most = static_cast<size_t>(request.truncate_prompt_tokens.value_or(0));
  TokenPair pair = completer_.encode_pair(query, request.documents[index], most);
  request.second_text = pair.second;
  return std::move(pair.ids);
}

TokenIds Service::encode(const ApiRequest& request, size_t index) const {
  if (request.prompts.empty()) {
    note_work("rendering and tokenizing the chat");
    return completer_.encode_chat(request.chat);
  }
  note_work("tokenizing the text of number {}", index);
  const Prompt& prompt = request.prompts[index];
  if (request.suffix) {
    return completer_.encode_infill({.prefix = std::get<std::string>(prompt),
                                     .suffix = *request.suffix,
                                     .files = request.infill_files,
                                     .add_bos = request.add_special_tokens});
  }
  if (const auto* ids = std::get_if<TokenIds>(&prompt)) return *ids;
  const EncodeOptions options{.add_special = request.add_special_tokens,
                              .parse_special = request.parse_special.value_or(true)};
  if (const auto* text = std::get_if<std::string>(&prompt)) return completer_.encode(*text, options);
  TokenIds all;
  for (const PromptPiece& piece : std::get<MixedPrompt>(prompt)) {
    const auto* text = std::get_if<std::string>(&piece);
    const TokenIds ids = text ? completer_.encode(*text, {.add_special = options.add_special && all.empty(),
                                                          .parse_special = options.parse_special})
                              : std::get<TokenIds>(piece);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return all;
}

// llama.cpp's form of a tokenized text. Bytes that are no text of their own are a list of numbers.
std::string Service::plain_tokens(const TokenIds& ids, bool with_pieces) const {
  if (!with_pieces) return fmt::format(R"({{"tokens":[{}]}})", fmt::join(ids, ","));
  std::string body = R"({"tokens":[)";
  for (const TokenId id : ids) {
    const std::string bytes = completer_.token_bytes(id);
    Json piece = bytes;
    if (!is_utf8(bytes)) {
      piece = Json::array();
      for (const char c : bytes) piece.push_back(static_cast<unsigned char>(c));
    }
    const std::string token =
        fmt::format(R"({}{{"id":{},"piece":{}}})", body.ends_with('[') ? "" : ",", id, dump(piece));
    if (body.capacity() - body.size() < token.size()) check_work(2 * body.capacity());
    body += token;
  }
  return body + "]}";
}

Job Service::tokenization(const ApiRequest& request) const {
  const TokenIds ids = encode(request, 0);
  note_work("writing {} tokens", ids.size());
  if (request.plain_tokens) return {.answer = ready_answer(plain_tokens(ids, request.with_pieces))};
  // Written by hand: a body may yield millions of tokens, and a Json of their strings takes ten times their bytes.
  std::string body =
      fmt::format(R"({{"count":{},"max_model_len":{},"tokens":[)", ids.size(), completer_.info().max_model_len);
  const auto add = [&](const auto& token) {
    if (body.capacity() - body.size() < token.size() + 1) check_work(2 * body.capacity());
    body += token;
    body += ',';
  };
  for (const TokenId id : ids) add(std::to_string(id));
  if (!ids.empty()) body.pop_back();
  body += R"(],"token_strs":)";
  if (request.return_token_strs) {
    body += '[';
    for (const TokenId id : ids) add(dump(completer_.token_text(id)));
    if (!ids.empty()) body.pop_back();
    body += ']';
  } else {
    body += "null";
  }
  body += '}';
  return {.answer = ready_answer(std::move(body))};
}

Job Service::detokenization(const ApiRequest& request) const {
  const std::string text = completer_.decode(std::get<TokenIds>(request.prompts.front()));
  return {.answer = ready_answer(dump({{"prompt", text}, {"content", text}}))};  // vLLM's name, and llama.cpp's
}

}  // namespace quire
