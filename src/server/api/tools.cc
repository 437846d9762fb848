#include "server/api/tools.h"

#include <algorithm>
#include <set>
#include <utility>

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
  if (const auto type = schema.object().find("type"); type && type->json() != "object") {
    throw type->error("{} is not allowed; arguments are an \"object\"", describe(type->json()));
  }
  if (const auto properties = schema.find("properties")) {
    for (const auto& [name, property] : properties->object().members()) {
      if (!property.json().is_object() && !property.json().is_boolean()) {
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
  if (const auto strict = function.find("strict"); strict && !strict->json().is_null()) rule.strict = strict->boolean();
  rule.schema_field = function.path() + "." + parameters;
  draft.tool_rules.push_back(std::move(rule));
}

void require_function_type(const JsonField& tool, std::string_view allowed) {
  const auto type = tool.object().find("type");
  if (type && type->string() != allowed) {
    throw type->error("{} is not supported; supported: \"{}\"", describe(type->json()), allowed);
  }
}

Json tool_json(const JsonField& function, const char* parameters) {
  Json made = {{"name", function.at("name").string()}};
  if (const auto description = function.find("description")) made["description"] = description->string();
  if (const auto schema = function.find(parameters)) made["parameters"] = schema->json();
  return {{"type", "function"}, {"function", std::move(made)}};
}

template <class Convert>
void read_each(ApiDraft& draft, const JsonField& field, Convert convert) {
  std::set<std::string> names;
  Json tools = Json::array();
  for (const JsonField& tool : field.elements(kMaxTools)) {
    Json& made = tools.emplace_back(convert(tool));
    if (!names.insert(made["function"]["name"].get<std::string>()).second) {
      throw tool.error("is a second tool with the name {}", describe(made["function"]["name"]));
    }
  }
  if (!tools.empty()) draft.tools = std::move(tools);
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
    if (!value.is_object()) return text;
  }
  if (!value.is_object()) return value.dump();
  const auto invalid = value.find(kInvalidArguments);
  return invalid != value.end() && value.size() == 1 && invalid->is_string() ? *invalid : value;
}

}  // namespace

void read_tools(ApiDraft& draft, const JsonField& field) {
  read_each(draft, field, [&](const JsonField& tool) {
    require_function_type(tool, "function");
    const JsonField function = tool.at("function");
    check_function(function, "parameters");
    note_rule(draft, function, "parameters");
    Json made = tool.json();
    made["type"] = "function";
    return made;
  });
}

void read_response_tools(ApiDraft& draft, const JsonField& field) {
  read_each(draft, field, [&](const JsonField& tool) {
    require_function_type(tool, "function");
    check_function(tool, "parameters");
    note_rule(draft, tool, "parameters");
    return tool_json(tool, "parameters");
  });
  draft.tools_as_sent = field.json();
}

void read_message_tools(ApiDraft& draft, const JsonField& field) {
  read_each(draft, field, [&](const JsonField& tool) {
    require_function_type(tool, "custom");
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
  if (draft.tool_choice.kind == ToolChoice::kNamed && !has_tool(draft.tools, draft.tool_choice.name)) {
    throw bad_request(draft.functions ? "function_call" : "tool_choice", "{} is none of the tools",
                      describe(Json(draft.tool_choice.name)));
  }
  if (draft.tool_choice.kind == ToolChoice::kRequired && !draft.tools.is_array()) {
    throw bad_request("tool_choice", "a call is required, but there are no tools");
  }
  if (draft.allowed_tools) {
    Json allowed = Json::array();
    for (const std::string& name : *draft.allowed_tools) {
      if (!has_tool(draft.tools, name))
        throw bad_request("tool_choice", "{} is none of the tools", describe(Json(name)));
    }
    for (const Json& tool : draft.tools) {
      const auto name = tool["function"]["name"].get<std::string>();
      if (std::ranges::find(*draft.allowed_tools, name) != draft.allowed_tools->end()) allowed.push_back(tool);
    }
    draft.tools = allowed.empty() ? Json() : std::move(allowed);
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
