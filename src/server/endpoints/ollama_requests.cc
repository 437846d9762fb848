// Requests of Ollama's clients, brought into the form of OpenAI's chats.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>

#include "base/text/duration.h"
#include "server/api/error.h"
#include "server/api/request/field_readers.h"
#include "server/api/request/prompts.h"
#include "server/api/request/tools.h"
#include "server/api/service.h"
#include "server/endpoints/infill.h"
#include "server/endpoints/ollama.h"

namespace quire {
namespace {

constexpr std::string_view kOllamaRoles[] = {"system", "developer", "user", "assistant", "tool"};
constexpr std::string_view kEfforts[] = {"low", "medium", "high", "max"};
constexpr size_t kMaxMessageCalls = 1024;

// Ollama's calls and results need no ids, but some chat templates do: results belong to the calls before them, in
// order.
class OllamaHistory {
 public:
  explicit OllamaHistory(Json& messages) : messages_(messages) {}

  void add(const JsonField& message) {
    const JsonField role = message.object().at("role");
    if (std::ranges::find(kOllamaRoles, role.string()) == std::end(kOllamaRoles)) {
      throw role.error("{} is not a known role; allowed: {}", describe(role.json()), fmt::join(kOllamaRoles, ", "));
    }
    if (const auto images = message.find("images"); images && !images->array().json().empty()) {
      throw images->error("is not supported; messages are text");
    }
    const bool assistant = role.string() == "assistant";
    const auto content = message.find("content");
    const bool result = role.string() == "tool";
    if (!content && !assistant && !result)
      throw bad_request(message.path() + ".content", "expected a string, found nothing");
    Json made = {{"role", role.string()},
                 {"content", result    ? read_result(content)
                             : content ? content->string()
                                       : ""}};
    if (assistant) {
      if (const auto thought = message.find("thinking"); thought && !thought->string().empty()) {
        made["reasoning_content"] = thought->string();
      }
      if (const auto calls = message.find("tool_calls")) add_calls(*calls, made);
    }
    if (result) add_result_of(message, made);
    messages_.push_back(std::move(made));
  }

 private:
  struct Call {
    std::string id, name;
  };

  void add_calls(const JsonField& calls, Json& made) {
    open_.clear();
    for (const JsonField& call : calls.elements(kMaxMessageCalls)) {
      const JsonField function = call.at("function");
      const JsonField name = function.at("name");
      const auto arguments = function.find("arguments");
      Json json = tool_call_json(nullptr, name, arguments ? &*arguments : nullptr);
      const std::string id = call.get_or<std::string>("id", fmt::format("call_{}", ++calls_));
      json["id"] = id;
      open_.push_back({id, name.string()});
      made["tool_calls"].push_back(std::move(json));
    }
  }

  void add_result_of(const JsonField& message, Json& made) {
    std::string name = message.get_or<std::string>("tool_name", message.get_or<std::string>("name", ""));
    std::string id = message.get_or<std::string>("tool_call_id", "");
    const auto call = std::ranges::find_if(
        open_, [&](const Call& c) { return id.empty() ? name.empty() || c.name == name : c.id == id; });
    if (call != open_.end()) {
      if (id.empty()) id = call->id;
      if (name.empty()) name = call->name;
      open_.erase(call);
    }
    if (!id.empty()) made["tool_call_id"] = id;
    if (!name.empty()) made["name"] = name;
  }

  Json& messages_;
  std::deque<Call> open_;  // without a result yet
  int calls_ = 0;
};

}  // namespace

void read_ollama_model(ApiDraft& draft, const JsonField& field) {
  constexpr std::string_view kTag = ":latest";
  draft.model = field.string();
  std::string_view name = draft.model;
  const auto served = [&] { return is_served(draft.limits, name); };
  if (!served() && name.ends_with(kTag)) name.remove_suffix(kTag.size());
  if (served()) return;
  throw ApiError(404, fmt::format("model {} not found; GET /api/tags lists the served models", describe(field.json())),
                 "invalid_request_error", "model", "model_not_found");
}

// Seconds, or a duration. Negative: as long as there is memory.
void read_keep_alive(ApiDraft& draft, const JsonField& field) {
  using std::chrono::milliseconds;
  constexpr double kMostSeconds = 1e9;
  std::optional<milliseconds> time;
  if (field.json().is_string()) {
    time = parse_duration(field.string());
  } else if (const double seconds = field.number(); std::abs(seconds) <= kMostSeconds) {
    time = milliseconds(std::llround(seconds * 1000));
  }
  if (!time) throw field.error("{} is not a duration; use seconds, \"5m\" or -1", describe(field.json()));
  draft.keep_alive = time->count() < 0 ? KeepAlive() : KeepAlive(*time);
}

void read_ollama_messages(ApiDraft& draft, const JsonField& field) {
  draft.has_messages = true;
  OllamaHistory history(draft.chat.messages);
  for (const JsonField& message : field.elements(kMaxMessages)) history.add(message);
  if (draft.chat.messages.empty()) return;
  const Json& last = draft.chat.messages.back();
  draft.chat.continue_final_message = last["role"] == "assistant" && !last.contains("tool_calls");
}

void read_ollama_system(ApiDraft& draft, const JsonField& field) {
  if (!field.string().empty()) draft.instructions = field.string();  // clients send "" for none
}

void read_options(ApiDraft& draft, const JsonField& field) {
  for (const auto& [name, option] : field.object().members()) read_parameter(draft, *draft.api->options, name, option);
}

void read_think(ApiDraft& draft, const JsonField& field) {
  const Json& think = field.json();
  if (think.is_string()) {
    if (std::ranges::find(kEfforts, field.string()) == std::end(kEfforts)) {
      throw field.error("{} is not supported; allowed: true, false, {}", describe(think), fmt::join(kEfforts, ", "));
    }
    set_effort(draft, field.string());
  }
  draft.think = think.is_string() || field.boolean();
  set_thinking(draft, draft.think);
}

void read_raw(ApiDraft& draft, const JsonField& field) { draft.raw = field.boolean(); }

void read_truncate(ApiDraft& draft, const JsonField& field) { draft.truncate_end = field.boolean(); }

void read_num_predict(ApiDraft& draft, const JsonField& field) {
  const auto tokens = static_cast<int>(field.integer(-2, kIntMax));
  draft.sampling.max_tokens = tokens > 0 ? tokens : kIntMax;
}

void read_num_ctx(ApiDraft& draft, const JsonField& field) {
  const auto tokens = static_cast<int>(field.integer(0, kIntMax));
  if (tokens > draft.limits.max_model_len) draft.larger_context = tokens;  // a prompt that fits can be answered
}

void settle_generate(ApiDraft& draft) {
  for (const auto& [given, field] :
       {std::pair{draft.instructions.has_value(), "system"}, {draft.suffix.has_value(), "suffix"}}) {
    if (given && draft.raw) throw bad_request(field, "cannot be combined with raw: true; put it into the prompt");
  }
  if (draft.suffix && draft.instructions) {
    throw bad_request("system", "cannot be combined with suffix; put it into the prompt");
  }
  const std::string prompt = draft.prompts.empty() ? "" : std::get<std::string>(draft.prompts.front());
  draft.prompts.clear();
  draft.only_loads = prompt.empty() && !draft.suffix;
  if (draft.only_loads) {
    draft.instructions.reset();
  } else if (draft.raw || draft.suffix) {
    draft.prompts.emplace_back(prompt);
  } else {
    draft.chat.messages.push_back({{"role", "user"}, {"content", prompt}});
  }
  settle_suffix(draft);
}

void settle_ollama_chat(ApiDraft& draft) { draft.only_loads = draft.chat.messages.empty(); }

void settle_embed(ApiDraft& draft) {
  if (draft.truncate_end) draft.truncate_prompt_tokens = draft.limits.max_model_len;
  settle_pooling(draft);
}

void adapt_ollama(ApiRequest& request, const Service& service) {
  if (request.think && !service.format().format().reasoning) {
    throw bad_request("think", "this model does not think before it answers; leave think out");
  }
  require_infill(request, service);
  const bool templated = request.api == &ollama_generate_api() && request.prompts.empty();
  if (templated && service.text().chat_template_source().empty()) use_plain_prompt(request);
}

void use_plain_prompt(ApiRequest& request) {
  if (request.instructions) throw bad_request("system", "is not supported: this model has no chat template");
  request.prompts.emplace_back(request.chat.messages.back()["content"].get<std::string>());
  request.chat.messages = Json::array();
}

}  // namespace quire
