#include "parsers/tool_prompt.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

bool shows(const RenderChat& render, ChatInput chat, std::initializer_list<std::string_view> texts) {
  try {
    const std::string prompt = render(std::move(chat));
    return std::ranges::all_of(texts, [&](std::string_view text) { return prompt.find(text) != std::string::npos; });
  } catch (const Error&) {
    return false;  // the template cannot take it
  }
}

bool shows_probe(const RenderChat& render, ChatInput chat) { return shows(render, std::move(chat), {kProbe}); }

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

// Arguments that are no object as they were written.
std::string text_of(const Json& arguments) {
  return arguments.is_string() ? arguments.get<std::string>() : arguments.dump();
}

// Calls in the form of description_of().
std::string generic_calls(const Json& calls) {
  std::string text;
  for (const Json& call : calls) {
    const Json& function = call["function"];
    if (!text.empty()) text += '\n';
    text += "<tool_call>\n{\"name\":" + function["name"].dump() + ",\"arguments\":" + text_of(function["arguments"]) +
            "}\n</tool_call>";
  }
  return text;
}

std::string python_literal(const Json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (!value.is_structured()) return value.dump();
  std::string text;
  for (const auto& [key, item] : value.items()) {
    if (!text.empty()) text += ", ";
    if (value.is_object()) text += Json(key).dump() + ": ";
    text += python_literal(item);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

// "(city=\"Oslo\", days=2)"
std::string python_arguments(const Json& arguments) {
  std::string text;
  for (const auto& [key, value] : arguments.items()) {
    if (!text.empty()) text += ", ";
    text += key + "=" + python_literal(value);
  }
  return "(" + text + ")";
}

// Calls as the model itself writes them. Empty: its syntax is not JSON or Python.
std::string native_calls(const Json& calls, const AnswerFormat& format) {
  const bool python = format.tools && format.tools->syntax.shape == CallShape::kPython;
  if (!format.form || (!python && format.tools->syntax.shape != CallShape::kJson)) return "";
  std::string text(format.form->begin);
  for (const Json& call : calls) {
    const Json& function = call["function"];
    const Json& arguments = function["arguments"];
    if (&call != &calls.front()) text += format.form->separator;
    text += std::string(format.form->before_name) + function["name"].get<std::string>();
    if (python) {
      text += arguments.is_object() ? python_arguments(arguments) : "(" + text_of(arguments) + ")";
    } else {
      text +=
          std::string(format.form->before_arguments) + text_of(arguments) + std::string(format.form->after_arguments);
    }
  }
  return text + std::string(format.form->end);
}

// Calls become text: in the model's own syntax if `native` is given and has one that can be written, or the generic one.
void write_out_calls(Json& messages, const AnswerFormat* native) {
  for (Json& message : messages) {
    const auto calls = message.find("tool_calls");
    if (calls == message.end()) continue;
    std::string written = native ? native_calls(*calls, *native) : "";
    if (written.empty()) written = generic_calls(*calls);
    const std::string text = message.value("content", "");
    message["content"] = text.empty() ? written : text + '\n' + written;
    message.erase("tool_calls");
  }
}

// Results, and what the user says right after them, become one message of the user.
void write_out_results(Json& messages) {
  Json written = Json::array();
  bool after_result = false;
  for (Json& message : messages) {
    const bool result = has_role(message, "tool");
    if (result && !after_result) written.push_back({{"role", "user"}, {"content", ""}});
    if (result) {
      auto& text = written.back()["content"].get_ref<std::string&>();
      if (after_result) text += '\n';
      text += "<tool_response>\n" + message.value("content", "") + "\n</tool_response>";
    } else if (after_result && has_role(message, "user")) {
      written.back()["content"].get_ref<std::string&>() += "\n\n" + message.value("content", "");
    } else {
      written.push_back(std::move(message));
    }
    after_result = result;
  }
  messages = std::move(written);
}

// The text of a message with calls becomes a message before it.
void separate_texts(Json& messages) {
  Json made = Json::array();
  for (Json& message : messages) {
    if (message.contains("tool_calls") && message.value("content", "") != "") {
      made.push_back({{"role", "assistant"}, {"content", std::exchange(message["content"], "")}});
    }
    made.push_back(std::move(message));
  }
  messages = std::move(made);
}

// Which of the results in messages[from, to) belongs to each call: by id, or by order where results have none. `to`: none.
std::vector<size_t> results_of(const Json& calls, const Json& messages, size_t from, size_t to) {
  std::map<std::string, size_t, std::less<>> by_id;
  for (size_t i = to; i-- > from;) {
    if (const auto id = messages[i].find("tool_call_id"); id != messages[i].end()) by_id[id->get<std::string>()] = i;
  }
  std::vector<size_t> results;
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto id = calls[i].find("id");
    const auto named = id == calls[i].end() ? by_id.end() : by_id.find(id->get_ref<const std::string&>());
    const bool by_order = from + i < to && !messages[from + i].contains("tool_call_id");
    results.push_back(named != by_id.end() ? named->second : by_order ? from + i : to);
    if (named != by_id.end()) by_id.erase(named);
  }
  return results;
}

// Each call becomes a message of its own, followed by its result.
void separate_calls(Json& messages) {
  Json made = Json::array();
  for (size_t at = 0; at < messages.size();) {
    Json message = std::move(messages[at++]);
    if (!message.contains("tool_calls") || message["tool_calls"].size() < 2) {
      made.push_back(std::move(message));
      continue;
    }
    size_t end = at;
    while (end < messages.size() && has_role(messages[end], "tool")) ++end;
    const Json calls = std::exchange(message["tool_calls"], Json::array());
    const std::vector<size_t> results = results_of(calls, messages, at, end);
    std::vector<bool> taken(end);
    for (size_t i = 0; i < calls.size(); ++i) {
      message["tool_calls"] = Json::array({calls[i]});
      made.push_back(std::move(message));
      message = {{"role", "assistant"}, {"content", ""}};  // text and thoughts come with the first call
      if (results[i] == end) continue;
      taken[results[i]] = true;
      made.push_back(messages[results[i]]);
    }
    for (; at < end; ++at) {
      if (!taken[at]) made.push_back(std::move(messages[at]));
    }
  }
  messages = std::move(made);
}

// For templates that go through the members of arguments.
void wrap_text_arguments(Json& messages) {
  for (Json& message : messages) {
    if (!message.contains("tool_calls")) continue;
    for (Json& call : message["tool_calls"]) {
      Json& arguments = call["function"]["arguments"];
      if (arguments.is_string()) arguments = Json{{kInvalidArguments, std::move(arguments)}};
    }
  }
}

// Ids as Kimi writes them, functions.NAME:NUMBER, for templates that show them in place of names.
void put_names_into_ids(Json& messages) {
  std::map<std::string, std::string, std::less<>> renamed;
  size_t number = 0;
  for (Json& message : messages) {
    if (const auto calls = message.find("tool_calls"); calls != message.end()) {
      for (Json& call : *calls) {
        const std::string begin = "functions." + call["function"]["name"].get<std::string>() + ":";
        const std::string old = call.value("id", "");
        const std::string id = old.starts_with(begin) ? old : begin + std::to_string(number);
        ++number;
        if (!old.empty()) renamed[old] = id;
        call["id"] = id;
      }
    }
    if (!has_role(message, "tool")) continue;
    const auto known = renamed.find(message.value("tool_call_id", ""));
    if (known != renamed.end()) message["tool_call_id"] = known->second;
  }
}

void fit_calls(Json& messages, const ToolForm& form, const AnswerFormat& format) {
  const bool generic = form.place != ToolPlace::kVariable;
  if (generic || !form.shows_calls) {
    write_out_calls(messages, generic ? nullptr : &format);
    if (generic || !form.shows_results) write_out_results(messages);
    return;
  }
  if (!form.shows_names) put_names_into_ids(messages);
  if (!form.shows_text_of_calls) separate_texts(messages);
  if (!form.shows_all_calls) separate_calls(messages);
  if (!form.takes_text_arguments) wrap_text_arguments(messages);
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

ToolPlace find_tool_place(const RenderChat& render) {
  const Json user = {{"role", "user"}, {"content", "Hi"}};
  if (shows_probe(render, {.messages = Json::array({user}), .tools = probe_tools()})) return ToolPlace::kVariable;
  const Json with_tools = {{"role", "system"}, {"content", ""}, {"tools", kProbe}};
  if (shows_probe(render, {.messages = Json::array({with_tools, user})})) return ToolPlace::kSystemMessage;
  const Json system = {{"role", "system"}, {"content", kProbe}};
  if (shows_probe(render, {.messages = Json::array({system, user})})) return ToolPlace::kSystemText;
  return ToolPlace::kUserText;
}

constexpr const char* kProbeText = "quire_text_53";
constexpr const char *kProbeIds[] = {"quire0001", "quire0002"}, *kProbeNames[] = {"quire_first_17", "quire_second_17"},
                     *kProbeResults[] = {"quire_result_31", "quire_result_47"};

// A chat in which an answer says `text` and calls some tools, and the results.
ChatInput probe_history(const char* text, size_t count, const Json& arguments = {{"x", "1"}}) {
  Json calls = Json::array(), results = Json::array();
  for (size_t i = 0; i < count; ++i) {
    calls.push_back({{"id", kProbeIds[i]},
                     {"type", "function"},
                     {"function", {{"name", kProbeNames[i]}, {"arguments", arguments}}}});
    results.push_back(
        {{"role", "tool"}, {"tool_call_id", kProbeIds[i]}, {"name", kProbeNames[i]}, {"content", kProbeResults[i]}});
  }
  Json messages = {{{"role", "user"}, {"content", "Hi"}},
                   {{"role", "assistant"}, {"content", text}, {"tool_calls", std::move(calls)}}};
  messages.insert(messages.end(), results.begin(), results.end());
  return {.messages = std::move(messages), .tools = probe_tools()};
}

// The same as part of a longer conversation.
ChatInput with_answer(ChatInput chat) {
  chat.messages.push_back({{"role", "assistant"}, {"content", "Yes"}});
  chat.messages.push_back({{"role", "user"}, {"content", "And?"}});
  return chat;
}

}  // namespace

ToolForm find_tool_form(const RenderChat& render) {
  ToolForm form{.place = find_tool_place(render)};
  if (form.place != ToolPlace::kVariable) return form;
  const auto shows_history = [&](ChatInput chat, std::initializer_list<std::string_view> texts) {
    if (!form.shows_names) put_names_into_ids(chat.messages);
    return shows(render, chat, texts) && shows(render, with_answer(chat), texts);
  };
  const auto shows_call = [&] { return shows_history(probe_history("", 1), {kProbeNames[0], kProbeResults[0]}); };
  form.shows_calls = shows_call();
  if (!form.shows_calls) {
    form.shows_names = false;
    form.shows_calls = shows_call();
    form.shows_names = !form.shows_calls;
  }
  form.shows_results = shows_history(probe_history("", 1), {kProbeResults[0]});
  form.shows_text_of_calls = shows_history(probe_history(kProbeText, 1), {kProbeText});
  form.shows_all_calls =
      shows_history(probe_history("", 2), {kProbeNames[0], kProbeNames[1], kProbeResults[0], kProbeResults[1]});
  form.takes_text_arguments = shows_history(probe_history("", 1, "{quire_cut_17: "), {"quire_cut_17"});
  return form;
}

void place_tools(ChatInput& chat, Json tools, const ToolForm& form, const AnswerFormat& format) {
  fit_calls(chat.messages, form, format);
  if (format.tools && format.tools->ids == CallIds::kNineCharacters) shorten_ids(chat.messages);
  if (format.tools && format.tools->ids == CallIds::kFunctionNames) name_ids(chat.messages);
  if (format.reasoning && format.reasoning->harmony) rename_reasoning(chat.messages);
  if (tools.is_null()) return;
  switch (form.place) {
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
