#include "parsers/tool_prompt.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "json/parse.h"

namespace quire {
namespace {

constexpr std::string_view kProbe = "quire_probe_17";

Json probe_tools() {
  return Json::array({{{"type", "function"},
                       {"function",
                        {{"name", kProbe},
                         {"description", "probe"},
                         {"parameters",
                          {{"type", "object"},
                           {"properties", {{"x", {{"type", "string"}, {"description", "probe"}}}}},
                           {"required", Json::array({"x"})}}}}}}});
}

bool shows_probe(const RenderChat& render, ChatInput chat) {
  try {
    return render(std::move(chat)).find(kProbe) != std::string::npos;
  } catch (const Error&) {
    return false;  // the template cannot take it
  }
}

// One object per tool: its name, description and parameters.
std::string list_of(const Json& tools, std::string_view separator) {
  std::string list;
  for (const Json& tool : tools) {
    if (!list.empty()) list += separator;
    list += tool["function"].dump();
  }
  return list;
}

std::string description_of(const Json& tools) {
  return "You can call these functions. Each line has a name and the JSON Schema of the arguments:\n<tools>\n" +
         list_of(tools, "\n") +
         "\n</tools>\n\nTo call functions, answer with one block for each call and nothing else:\n<tool_call>\n"
         "{\"name\": \"FUNCTION\", \"arguments\": {…}}\n</tool_call>\n"
         "You then get the results in <tool_response></tool_response>. If no function is needed, answer as usual.";
}

bool has_role(const Json& message, std::string_view role) {
  return message.is_object() && message.value("role", "") == role;
}

// `text` before the content of the first message if that has the role, or in a new first message.
void prepend(Json& messages, std::string_view role, std::string text, std::string_view member = {}) {
  if (messages.empty() || !has_role(messages.front(), role)) {
    messages.insert(messages.begin(), Json{{"role", role}, {"content", ""}});
  }
  Json& first = messages.front();
  if (!member.empty()) {
    first[std::string(member)] = std::move(text);
    return;
  }
  const std::string content = first.contains("content") && first["content"].is_string() ? first["content"] : "";
  if (role == "system") {
    first["content"] = content.empty() ? text : content + "\n\n" + text;
  } else {
    first["content"] = text + "\n\n" + content;
  }
}

// For templates without calls: they become text, and results messages of the user.
void write_out_calls(Json& messages) {
  Json written = Json::array();
  bool after_result = false;
  for (Json& message : messages) {
    const bool result = has_role(message, "tool");
    if (const auto calls = message.find("tool_calls"); calls != message.end()) {
      std::string text = message.value("content", "");
      for (const Json& call : *calls) {
        const Json function = {{"name", call["function"]["name"]}, {"arguments", call["function"]["arguments"]}};
        if (!text.empty()) text += '\n';
        text += "<tool_call>\n" + function.dump() + "\n</tool_call>";
      }
      message["content"] = text;
      message.erase("tool_calls");
    }
    if (result) {
      if (!after_result) written.push_back({{"role", "user"}, {"content", ""}});
      auto& text = written.back()["content"].get_ref<std::string&>();
      if (after_result) text += '\n';
      text += "<tool_response>\n" + message.value("content", "") + "\n</tool_response>";
    } else {
      written.push_back(std::move(message));
    }
    after_result = result;
  }
  messages = std::move(written);
}

// Nine letters and digits that are always the same for an id.
std::string short_id(std::string_view id) {
  static constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const bool fits = id.size() == 9 && id.find_first_not_of(kDigits) == std::string_view::npos;
  if (fits) return std::string(id);
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::string made;
  for (int i = 0; i < 9; ++i, hash /= kDigits.size()) made += kDigits[hash % kDigits.size()];
  return made;
}

void shorten(Json& object, const char* member) {
  if (object.contains(member) && object[member].is_string())
    object[member] = short_id(object[member].get<std::string>());
}

void shorten_ids(Json& messages) {
  for (Json& message : messages) {
    shorten(message, "tool_call_id");
    if (!message.contains("tool_calls")) continue;
    for (Json& call : message["tool_calls"]) shorten(call, "id");
  }
}

// Kimi's templates show the id of a call, in which the model reads the function's name.
void name_ids(Json& messages) {
  std::map<std::string, std::string> names;
  int number = 0;
  for (Json& message : messages) {
    if (const auto id = message.find("tool_call_id"); id != message.end() && id->is_string()) {
      const auto named = names.find(id->get<std::string>());
      if (named != names.end()) *id = named->second;
    }
    if (!message.contains("tool_calls")) continue;
    for (Json& call : message["tool_calls"]) {
      const std::string named =
          "functions." + call["function"]["name"].get<std::string>() + ":" + std::to_string(number++);
      if (call.contains("id") && call["id"].is_string()) names[call["id"].get<std::string>()] = named;
      call["id"] = named;
    }
  }
}

// Harmony's template takes the reasoning as `thinking`, in calls only without a text.
void rename_reasoning(Json& messages) {
  for (Json& message : messages) {
    const auto reasoning = message.find("reasoning_content");
    if (reasoning == message.end() || (message.contains("tool_calls") && message.value("content", "") != "")) continue;
    message["thinking"] = *reasoning;
  }
}

}  // namespace

ToolPlace find_tool_place(const RenderChat& render) {
  const Json user = {{"role", "user"}, {"content", "Hi"}};
  if (shows_probe(render, {.messages = Json::array({user}), .tools = probe_tools()})) return ToolPlace::kVariable;
  const Json with_tools = {{"role", "system"}, {"content", ""}, {"tools", kProbe}};
  if (shows_probe(render, {.messages = Json::array({with_tools, user})})) return ToolPlace::kSystemMessage;
  const Json system = {{"role", "system"}, {"content", kProbe}};
  if (shows_probe(render, {.messages = Json::array({system, user})})) return ToolPlace::kSystemText;
  return ToolPlace::kUserText;
}

void place_tools(ChatInput& chat, Json tools, ToolPlace place, const AnswerFormat& format) {
  if (place != ToolPlace::kVariable) write_out_calls(chat.messages);
  if (format.tools && format.tools->ids == CallIds::kNineCharacters) shorten_ids(chat.messages);
  if (format.tools && format.tools->ids == CallIds::kFunctionNames) name_ids(chat.messages);
  if (format.reasoning && format.reasoning->harmony) rename_reasoning(chat.messages);
  if (tools.is_null()) return;
  switch (place) {
    case ToolPlace::kVariable:
      chat.tools = std::move(tools);
      break;
    case ToolPlace::kSystemMessage:
      prepend(chat.messages, "system", "[" + list_of(tools, ", ") + "]", "tools");
      break;
    case ToolPlace::kSystemText:
      prepend(chat.messages, "system", description_of(tools));
      break;
    case ToolPlace::kUserText:
      prepend(chat.messages, "user", description_of(tools));
      break;
  }
}

}  // namespace quire
