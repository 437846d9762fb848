#include "server/endpoints/responses.h"

#include <algorithm>

#include "server/api/error.h"
#include "server/api/request/field_readers.h"
#include "server/api/request/prompts.h"
#include "server/api/request/provider_content.h"
#include "server/api/request/structured_output.h"
#include "server/api/request/tools.h"

namespace quire {
namespace {

constexpr std::string_view kResponsesRoles[] = {"user", "assistant", "system", "developer"},
                           kTextTypes[] = {"input_text", "output_text", "text"},
                           kLogprobs = "message.output_text.logprobs";

// The texts of a reasoning item.
std::string reasoning_of(const JsonField& item) {
  std::string text;
  for (const char* member : {"content", "summary"}) {
    const auto parts = item.find(member);
    if (!parts || !text.empty()) continue;
    for (const JsonField& part : parts->elements()) {
      if (const auto piece = part.find("text")) text += piece->string();
    }
  }
  return text;
}

// Items that tell the model nothing: lists of tools, approvals, and histories that only their provider can read.
constexpr std::string_view kWithoutText[] = {"compaction",         "compaction_summary",   "compaction_trigger",
                                             "context_compaction", "ghost_snapshot",       "mcp_list_tools",
                                             "additional_tools",   "mcp_approval_request", "mcp_approval_response",
                                             "tool_search_call",   "tool_search_output"};

// The items of one answer, reasoning, a message and calls, are one message of a chat.
class History {
 public:
  explicit History(ApiDraft& draft) : draft_(draft), messages_(draft.chat.messages) {}

  void add(const JsonField& item) {
    const auto type = item.object().find("type");
    const std::string& name = type ? type->string() : kMessage;
    if (name == "reasoning") {
      std::string text = reasoning_of(item);
      if (text.empty() && item.has("encrypted_content")) leave_out(name, "encrypted");
      reasoning_ += text;
    } else if (name == "function_call") {
      add_call(item);
    } else if (name == "function_call_output") {
      std::string text = read_result(item.find("output"), {kTextTypes});
      messages_.push_back(tool_result_json(names_, item.at("call_id"), std::move(text)));
    } else if (name == kMessage) {
      add_message(read_text_message(item, kResponsesRoles, {kTextTypes}));
    } else if (!add_other(item, name)) {
      throw type->error(
          "{} is not supported; supported: \"message\", \"reasoning\", \"function_call\", "
          "\"function_call_output\"",
          describe(type->json()));
    }
  }

 private:
  inline static const std::string kMessage = "message";

  void leave_out(const std::string& type, std::string_view why) {
    add_note(draft_, fmt::format("items of type {} in the input are left out: they are {}", describe(Json(type)), why));
  }

  // Items of tools that are not functions. Calls that the client answered are shown as those of functions.
  bool add_other(const JsonField& item, const std::string& type) {
    if (std::ranges::find(kWithoutText, type) != std::end(kWithoutText)) {
      leave_out(type, "nothing that this server can show to the model");
    } else if (type == "mcp_call" || (type.ends_with("_call") && item.has("call_id"))) {
      add_other_call(item, type);
    } else if (type.ends_with("_call_output")) {
      const JsonField id = item.has("call_id") ? item.at("call_id") : item.at("id");
      messages_.push_back(tool_result_json(names_, id, result_text(item.at("output"))));
    } else if (type.ends_with("_call")) {
      leave_out(type, "of a tool that this server does not run");
    } else if (type == "agent_message") {
      add_message({{"role", "user"}, {"content", result_text(item.at("content"))}});
    } else {
      return false;
    }
    return true;
  }

  void add_other_call(const JsonField& item, const std::string& type) {
    const JsonField id = item.has("call_id") ? item.at("call_id") : item.at("id");
    const std::string name =
        item.get_or<std::string>("name", type.substr(0, type.size() - std::string_view("_call").size()));
    Json arguments = Json::object();
    if (const auto text = item.find("arguments")) {
      const JsonField field = item.has("name") ? item.at("name") : item.at("type");
      arguments = tool_call_json(nullptr, field, &*text)["function"]["arguments"];
    } else if (const auto input = item.find("input")) {
      arguments["input"] = input->string();
    } else {
      for (const char* member : {"action", "operation"}) {
        if (const auto action = item.find(member)) arguments = action->object().json();
      }
    }
    push_call(id, name,
              {{"id", id.string()}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}});
    if (type != "mcp_call") return;
    const auto output = item.has("output") ? item.find("output") : item.find("error");
    messages_.push_back(tool_result_json(names_, id, output ? result_text(*output) : ""));
  }

  void add_message(Json message) {
    if (message["role"] == "assistant") {
      attach_reasoning(message);
    } else {
      reasoning_.clear();
    }
    messages_.push_back(std::move(message));
  }

  void add_call(const JsonField& item) {
    const JsonField id = item.at("call_id");
    const auto arguments = item.find("arguments");
    Json call = tool_call_json(&id, item.at("name"), arguments ? &*arguments : nullptr);
    std::string name = item.at("name").string();
    if (const auto name_space = item.find("namespace")) name = joined_name(name_space->string(), name);
    call["function"]["name"] = name;
    push_call(id, name, std::move(call));
  }

  void push_call(const JsonField& id, const std::string& name, Json call) {
    names_[id.string()] = name;
    if (messages_.empty() || messages_.back()["role"] != "assistant") {
      messages_.push_back({{"role", "assistant"}, {"content", ""}});
    }
    attach_reasoning(messages_.back());
    messages_.back()["tool_calls"].push_back(std::move(call));
  }

  void attach_reasoning(Json& message) {
    if (!reasoning_.empty()) message["reasoning_content"] = std::exchange(reasoning_, {});
  }

  ApiDraft& draft_;
  Json& messages_;
  CallNames names_;
  std::string reasoning_;  // before the message that it belongs to
};

}  // namespace

void read_items(ApiDraft& draft, const JsonField& field) {
  draft.has_messages = true;
  if (field.json().is_string()) {
    draft.chat.messages.push_back({{"role", "user"}, {"content", field.string()}});
    return;
  }
  if (!field.json().is_array()) {
    throw field.error("expected a string or an array of items, found {}", describe(field.json()));
  }
  History history(draft);
  size_t number = 0;
  for (const JsonField& item : field.elements(kMaxMessages)) {
    history.add(item);
    draft.chat_items.resize(draft.chat.messages.size(), number++);
  }
  if (draft.chat.messages.empty()) throw field.error("must have at least one message");
}

void read_reasoning(ApiDraft& draft, const JsonField& field) {
  for (const auto& [key, value] : field.object().members()) {
    if (value.json().is_null()) continue;
    if (key == "effort") {
      set_effort(draft, value.string());
    } else {
      draft.without_effect.push_back("reasoning." + std::string(key));
    }
  }
}

void read_text_options(ApiDraft& draft, const JsonField& field) {
  for (const auto& [key, value] : field.object().members()) {
    if (value.json().is_null()) continue;
    if (key == "verbosity") {
      draft.chat.kwargs.emplace("verbosity", value.string());
    } else if (key != "format") {
      draft.without_effect.push_back("text." + std::string(key));
    } else {
      read_output_format(draft, value);
    }
  }
}

void read_truncation(ApiDraft& draft, const JsonField& field) {
  if (field.json() != "disabled" && field.json() != "auto") {
    throw field.error("expected \"disabled\" or \"auto\", found {}", describe(field.json()));
  }
  if (field.json() == "auto") draft.without_effect.emplace_back("truncation");  // what is too long is refused
}

void read_include(ApiDraft& draft, const JsonField& field) {
  for (const JsonField& part : field.elements(64)) {
    if (part.string() == kLogprobs) {
      draft.logprobs = true;
    } else {
      draft.without_effect.push_back("include: " + part.string());
    }
  }
}

}  // namespace quire
