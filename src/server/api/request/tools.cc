#include "server/api/request/tools.h"

#include <algorithm>
#include <set>
#include <utility>

#include "json/empty_objects.h"
#include "parsers/tool_prompt.h"
#include "server/api/error.h"

namespace quire {
namespace {

void check_name(const JsonField& field) {
  const std::string& name = field.string();
  const auto fits = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  };
  if (name.empty() || name.size() > kMaxToolName || !std::ranges::all_of(name, fits)) {
    throw field.error("{} is not a tool's name; allowed are 1 to {} letters, digits and _ - .", describe(field.json()),
                      kMaxToolName);
  }
}

// A JSON Schema of an object, as far as templates and parsers read it.
void check_parameters(const JsonField& schema) {
  if (is_empty_list(schema.json())) return;
  if (const auto type = schema.object().find("type"); type && type->json() != "object") {
    throw type->error("{} is not allowed; arguments are an \"object\"", describe(type->json()));
  }
  if (const auto properties = schema.find("properties"); properties && !is_empty_list(properties->json())) {
    for (const auto& [name, property] : properties->object().members()) {
      if (!property.json().is_object() && !property.json().is_boolean() && !is_empty_list(property.json())) {
        throw property.error("expected a JSON Schema, found {}", describe(property.json()));
      }
    }
  }
  if (const auto required = schema.find("required")) {
    for (const JsonField& name : required->elements()) name.string();
  }
}

// The members of a function, wherever an API has them.
void check_function(const JsonField& function, const char* parameters) {
  check_name(function.at("name"));
  if (const auto description = function.find("description")) description->string();
  if (const auto schema = function.find(parameters)) check_parameters(*schema);
}

void note_rule(ApiDraft& draft, const JsonField& function, const char* parameters) {
  ToolRule rule{.name = function.at("name").string()};
  if (const auto strict = function.find("strict")) rule.strict = strict->boolean();
  rule.schema_field = function.path() + "." + parameters;
  draft.tool_rules.push_back(std::move(rule));
}

// Whether the tool is of a kind that this server cannot run: a search, a shell or a server that its provider offers, or
// a text that does not follow a JSON Schema. Agents send such tools next to functions and do without them, so they are
// left out; settle_tools() refuses a request that cannot do without them.
bool leave_out(ApiDraft& draft, const JsonField& tool, std::string_view offered) {
  const auto type = tool.object().find("type");
  if (!type || type->string() == offered) return false;
  if (type->string().empty() || type->string() == "function") {  // "function": another API's form
    throw type->error("{} is not supported; supported: \"{}\"", describe(type->json()), offered);
  }
  const auto name = tool.find("name");
  draft.tools_left_out.emplace_back(name && name->json().is_string() ? name->string() : type->string(), type->string());
  add_note(draft,
           fmt::format("tools of type {} are left out, because this server cannot run them", describe(type->json())));
  return true;
}

Json tool_json(const JsonField& function, const char* parameters) {
  Json made = {{"name", function.at("name").string()}};
  if (const auto description = function.find("description")) made["description"] = description->string();
  if (const auto schema = function.find(parameters)) made["parameters"] = with_empty_objects(schema->json());
  return {{"type", "function"}, {"function", std::move(made)}};
}

// A list of tools while it is read. Names are those that the model sees.
class ToolTable {
 public:
  void add(const JsonField& tool, Json made) {
    const Json& name = made["function"]["name"];
    if (tools_.size() == kMaxTools) throw tool.error("is one more than the {} functions that are allowed", kMaxTools);
    if (!names_.insert(name.get<std::string>()).second) {
      throw tool.error("is a second tool with the name {}", describe(name));
    }
    tools_.push_back(std::move(made));
  }
  Json take() { return tools_.empty() ? Json() : std::move(tools_); }

 private:
  std::set<std::string> names_;
  Json tools_ = Json::array();
};

// `convert` returns null for a tool that is left out.
template <class Convert>
void read_each(ApiDraft& draft, const JsonField& field, Convert convert) {
  ToolTable tools;
  for (const JsonField& tool : field.elements(kMaxTools)) {
    if (Json made = convert(tool); !made.is_null()) tools.add(tool, std::move(made));
  }
  if (Json made = tools.take(); !made.is_null()) draft.tools = std::move(made);
}

bool is_namespace(const JsonField& tool) {
  const auto type = tool.object().find("type");
  const auto name = tool.find("name"), tools = tool.find("tools");
  return type && type->json() == "namespace" && name && name->json().is_string() && tools && tools->json().is_array();
}

// A function of the Responses API, or null if it is left out.
Json response_tool(ApiDraft& draft, const JsonField& tool, const std::string& name_space) {
  if (leave_out(draft, tool, "function")) return nullptr;
  check_function(tool, "parameters");
  note_rule(draft, tool, "parameters");
  Json made = tool_json(tool, "parameters");
  if (name_space.empty()) return made;
  ToolRule& rule = draft.tool_rules.back();
  rule.name_space = name_space;
  rule.name = joined_name(name_space, rule.name);
  if (rule.name.size() > kMaxToolName) {
    throw tool.error("has a name of {} characters together with its namespace, at most {} are allowed",
                     rule.name.size(), kMaxToolName);
  }
  made["function"]["name"] = rule.name;
  return made;
}

ToolChoice named(const JsonField& name) { return {ToolChoice::kNamed, name.string()}; }

// {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "function": {"name": …}}]}
void read_allowed_tools(ApiDraft& draft, const JsonField& choice) {
  const JsonField inner = choice.find("allowed_tools").value_or(choice);  // chats nest it
  const JsonField mode = inner.at("mode");
  if (mode.string() != "auto" && mode.string() != "required") {
    throw mode.error("{} is not supported; allowed: \"auto\", \"required\"", describe(mode.json()));
  }
  draft.tool_choice.kind = mode.string() == "auto" ? ToolChoice::kAuto : ToolChoice::kRequired;
  draft.allowed_tools.emplace();
  for (const JsonField& tool : inner.at("tools").elements(kMaxTools)) {
    const auto type = tool.object().find("type");
    if (type && type->string() != "function") continue;  // one of those that are left out
    draft.allowed_tools->push_back(tool.find("function").value_or(tool).at("name").string());
  }
}

bool has_tool(const Json& tools, std::string_view name) {
  return std::ranges::any_of(tools, [&](const Json& tool) { return tool["function"]["name"] == name; });
}

// An object, or else the text: models write calls that are cut off or broken, and clients send them back.
Json written_arguments(const JsonField& arguments) {
  Json value = arguments.json();
  if (value.is_string()) {
    const std::string text = std::exchange(value, Json::object());
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) return value;
    try {
      value = parse_json(text, "", {.values = kMaxBodyValues, .replace_surrogates = true});
    } catch (const JsonError&) {
      return text;
    }
    if (!value.is_object() && !is_empty_list(value)) return text;
  }
  if (is_empty_list(value)) return Json::object();
  if (!value.is_object()) return value.dump();
  const auto invalid = value.find(kInvalidArguments);
  return invalid != value.end() && value.size() == 1 && invalid->is_string() ? *invalid : value;
}

// For a choice that names a tool which may not be called.
ApiError unknown_tool(const ApiDraft& draft, const std::string& name) {
  const char* const field = draft.functions ? "function_call" : "tool_choice";
  using Tool = std::pair<std::string, std::string>;
  const auto left_out = std::ranges::find(draft.tools_left_out, name, &Tool::first);
  if (left_out == draft.tools_left_out.end())
    return bad_request(field, "{} is none of the tools", describe(Json(name)));
  return bad_request(field, "{} is a tool of type {}, which this server cannot run; let the model call a function",
                     describe(Json(name)), describe(Json(left_out->second)));
}

// Only the tools of the choice "allowed_tools".
void keep_allowed(ApiDraft& draft) {
  Json allowed = Json::array();
  for (const std::string& name : *draft.allowed_tools) {
    const bool left_out =
        std::ranges::any_of(draft.tools_left_out, [&](const auto& tool) { return tool.first == name; });
    if (!left_out && !has_tool(draft.tools, name)) throw unknown_tool(draft, name);
  }
  for (const Json& tool : draft.tools) {
    const auto name = tool["function"]["name"].get<std::string>();
    if (std::ranges::find(*draft.allowed_tools, name) != draft.allowed_tools->end()) allowed.push_back(tool);
  }
  draft.tools = allowed.empty() ? Json() : std::move(allowed);
}

}  // namespace

void read_tools(ApiDraft& draft, const JsonField& field) {
  read_each(draft, field, [&](const JsonField& tool) -> Json {
    if (leave_out(draft, tool, "function")) return nullptr;
    const JsonField function = tool.at("function");
    check_function(function, "parameters");
    note_rule(draft, function, "parameters");
    Json made = tool.json();
    made["type"] = "function";
    Json& shown = made["function"];
    if (shown.contains("parameters")) shown["parameters"] = with_empty_objects(std::move(shown["parameters"]));
    return made;
  });
}

void read_response_tools(ApiDraft& draft, const JsonField& field) {
  ToolTable tools;
  const auto add = [&](const JsonField& tool, const std::string& name_space) {
    if (Json made = response_tool(draft, tool, name_space); !made.is_null()) tools.add(tool, std::move(made));
  };
  for (const JsonField& tool : field.elements(kMaxTools)) {
    if (!is_namespace(tool)) {
      add(tool, {});
      continue;
    }
    check_name(tool.at("name"));
    for (const JsonField& inner : tool.at("tools").elements(kMaxTools)) add(inner, tool.at("name").string());
  }
  draft.tools = tools.take();
}

std::string joined_name(const std::string& name_space, const std::string& name) {
  return name_space + (name_space.ends_with("__") ? "" : "__") + name;
}

void read_message_tools(ApiDraft& draft, const JsonField& field) {
  read_each(draft, field, [&](const JsonField& tool) -> Json {
    if (leave_out(draft, tool, "custom")) return nullptr;
    check_function(tool, "input_schema");
    note_rule(draft, tool, "input_schema");
    return tool_json(tool, "input_schema");
  });
}

void read_functions(ApiDraft& draft, const JsonField& field) {
  if (draft.tools.is_array()) throw field.error("cannot be combined with tools, which replaces it");
  read_each(draft, field, [&](const JsonField& function) {
    check_function(function, "parameters");
    note_rule(draft, function, "parameters");
    return tool_json(function, "parameters");
  });
  draft.functions = true;
  draft.parallel_tool_calls = false;
}

void read_tool_choice(ApiDraft& draft, const JsonField& field) {
  if (field.json().is_object()) {
    const JsonField type = field.at("type");
    if (type.string() == "allowed_tools") return read_allowed_tools(draft, field);
    if (type.string() != "function") {
      throw type.error("{} is not supported; supported: \"function\", \"allowed_tools\"", describe(type.json()));
    }
    draft.tool_choice = named(field.find("function").value_or(field).at("name"));
    if (const auto name_space = field.find("namespace")) {
      draft.tool_choice.name = joined_name(name_space->string(), draft.tool_choice.name);
    }
  } else if (field.json() == "required") {
    draft.tool_choice.kind = ToolChoice::kRequired;
  } else if (field.json() == "auto" || field.json() == "none") {
    draft.tool_choice.kind = field.json() == "none" ? ToolChoice::kNone : ToolChoice::kAuto;
  } else {
    throw field.error("expected \"auto\", \"none\", \"required\" or an object, found {}", describe(field.json()));
  }
}

void read_message_tool_choice(ApiDraft& draft, const JsonField& field) {
  const JsonField type = field.object().at("type");
  const std::string& name = type.string();
  if (name == "tool") {
    draft.tool_choice = named(field.at("name"));
  } else if (name == "any") {
    draft.tool_choice.kind = ToolChoice::kRequired;
  } else if (name == "auto" || name == "none") {
    draft.tool_choice.kind = name == "none" ? ToolChoice::kNone : ToolChoice::kAuto;
  } else {
    throw type.error("{} is not supported; allowed: \"auto\", \"any\", \"tool\", \"none\"", describe(type.json()));
  }
  if (const auto disable = field.find("disable_parallel_tool_use")) draft.parallel_tool_calls = !disable->boolean();
}

void read_function_call(ApiDraft& draft, const JsonField& field) {
  if (field.json().is_object()) {
    draft.tool_choice = named(field.at("name"));
  } else if (field.json() == "auto" || field.json() == "none") {
    draft.tool_choice.kind = field.json() == "none" ? ToolChoice::kNone : ToolChoice::kAuto;
  } else {
    throw field.error("expected \"auto\", \"none\" or an object, found {}", describe(field.json()));
  }
}

void read_parallel_tool_calls(ApiDraft& draft, const JsonField& field) { draft.parallel_tool_calls = field.boolean(); }

void settle_tools(ApiDraft& draft) {
  const ToolChoice& choice = draft.tool_choice;
  if (choice.kind == ToolChoice::kNamed && !has_tool(draft.tools, choice.name)) throw unknown_tool(draft, choice.name);
  if (draft.allowed_tools) keep_allowed(draft);
  if (choice.kind == ToolChoice::kRequired && !draft.tools.is_array()) {
    if (draft.tools_left_out.empty()) throw bad_request("tool_choice", "a call is required, but there are no tools");
    throw bad_request("tool_choice", "a call is required, but this server cannot run tools of type {}; send a function",
                      describe(Json(draft.tools_left_out.front().second)));
  }
  if (draft.tool_choice.kind == ToolChoice::kNone) draft.tools = nullptr;  // the model is not told of them
}

Json tool_result_json(const CallNames& names, const JsonField& id, std::string text) {
  Json result = {{"role", "tool"}, {"tool_call_id", id.string()}};
  if (const auto name = names.find(id.string()); name != names.end()) result["name"] = name->second;
  result["content"] = std::move(text);
  return result;
}

Json tool_call_json(const JsonField* id, const JsonField& name, const JsonField* arguments) {
  Json call = Json::object();
  if (id) call["id"] = id->string();
  call["type"] = "function";
  call["function"] = {{"name", name.string()},
                      {"arguments", arguments ? written_arguments(*arguments) : Json::object()}};
  return call;
}

}  // namespace quire
