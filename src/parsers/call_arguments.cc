#include "parsers/call_arguments.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "parsers/argument_schema.h"
#include "parsers/constraint_parts.h"

namespace quire {
namespace {

using Kind = ConstraintSource::Kind;
using Parts = std::vector<ConstraintSource>;

// {"type": "string"} and nothing else that matters.
bool is_any_of_type(const Json& schema, const char* type) {
  if (!schema.is_object() || schema.value("type", Json()) != type) return false;
  return std::ranges::all_of(schema.items(),
                             [](const auto& member) { return member.key() == "type" || is_annotation(member.key()); });
}

// The texts of {"enum": ["a", "b"]} or {"type": "string", "const": "a"}; none if the schema is another one.
std::vector<std::string> string_values(const Json& schema) {
  std::vector<std::string> texts;
  if (!schema.is_object()) return texts;
  Json values = schema.value("enum", Json());
  if (schema.contains("const") && schema.contains("type")) values = Json::array({schema["const"]});
  if (!values.is_array()) return texts;
  for (const auto& [key, value] : schema.items()) {
    if (key == "enum" || key == "const" || (key == "type" && value == "string") || is_annotation(key)) continue;
    return {};
  }
  for (const Json& value : values) {
    if (!value.is_string()) return {};
    texts.push_back(value);
  }
  return texts;
}

ConstraintSource json(const Json& schema, const std::string& label) {
  return {.kind = Kind::kJsonSchema, .text = schema.dump(), .label = label};
}

// Arguments that are written one by one, not as a JSON object.
class NamedArguments {
 public:
  NamedArguments(const AnswerFormat& format, const Json& schema, const std::string& label)
      : syntax_(format.tools->syntax), form_(*format.form), marks_(format.tokens), schema_(schema), label_(label) {
    for (const auto& [key, value] : schema.items()) {
      const bool known = key == "type" || key == "properties" || key == "required" || key == "additionalProperties" ||
                         key == "$defs" || key == "definitions" || key == "$schema" || is_annotation(key);
      if (!known) throw cannot_follow(key);
    }
    if (schema.contains("properties")) {
      for (const auto& [name, property] : schema["properties"].items()) add(name, property);
    }
    for (const Json& name : schema.value("required", Json::array())) {
      const auto found = std::ranges::find(arguments_, name.get<std::string>(), &Argument::name);
      if (found == arguments_.end()) add(name, true);
      (found == arguments_.end() ? arguments_.back() : *found).required = true;
    }
  }

  ConstraintSource all() const {
    if (syntax_.shape == CallShape::kTags) {
      Parts parts;
      for (const Argument& argument : arguments_) {
        parts.push_back(argument.required ? argument.written : optional(argument.written));
      }
      return sequence(std::move(parts));
    }
    return from(0);
  }

 private:
  struct Argument {
    std::string name;
    ConstraintSource written;
    bool required = false;
  };

  Error cannot_follow(std::string_view what) const {
    return unsupported(
        "{}: {} cannot be followed exactly in this model's syntax of calls; leave it out, or set strict to "
        "false",
        label_.empty() ? "parameters" : label_, what);
  }

  std::string_view separator() const { return syntax_.shape == CallShape::kPython ? ", " : ","; }

  // The arguments from `i` on, before which none was written.
  ConstraintSource from(size_t i) const {
    if (i == arguments_.size()) return empty();
    Parts written = {arguments_[i].written};
    for (size_t j = i + 1; j < arguments_.size(); ++j) {
      ConstraintSource next =
          sequence({{.kind = Kind::kText, .text = std::string(separator())}, arguments_[j].written});
      written.push_back(arguments_[j].required ? std::move(next) : optional(std::move(next)));
    }
    if (arguments_[i].required) return sequence(std::move(written));
    return one_of({sequence(std::move(written)), from(i + 1)});
  }

  void add(const std::string& name, const Json& property) {
    const auto plain = [](unsigned char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
             c == '.';
    };
    if (name.empty() || !std::ranges::all_of(name, plain)) throw cannot_follow("a property named " + Json(name).dump());
    Parts parts;
    if (syntax_.shape == CallShape::kTags) {
      parts = marks_.split(std::string(syntax_.key) + name);
      parts.push_back(one_of(tagged_values(name, property)));
      append(parts, marks_.split(std::string(form_.around_value) + std::string(syntax_.value_end) +
                                 std::string(form_.after_value)));
    } else {
      parts.push_back({.kind = Kind::kText, .text = name + (syntax_.shape == CallShape::kPython ? '=' : ':')});
      parts.push_back(value(name, property));
    }
    arguments_.push_back({name, sequence(std::move(parts))});
  }

  // What follows the name, to the end of the value: a text as it is, or JSON.
  Parts tagged_values(const std::string& name, const Json& property) const {
    const auto after_name = [&](std::string_view key_suffix, ConstraintSource value) {
      Parts parts = marks_.split(std::string(key_suffix) + std::string(syntax_.key_end) + std::string(form_.after_key) +
                                 std::string(syntax_.value) + std::string(form_.around_value));
      parts.push_back(std::move(value));
      return sequence(std::move(parts));
    };
    if (!value_types(schema_, property).is_text()) {
      return {after_name(syntax_.json_key, json_value(name, property))};
    }
    std::string obstacle;
    const auto texts = argument_texts(schema_, property, obstacle);
    if (!texts) throw cannot_follow(obstacle + " of the string " + name);
    std::vector<std::string_view> ends = syntax_.closes;
    ends.insert(ends.end(), {syntax_.value_end, syntax_.function_end});
    for (const std::string& choice : texts->choices) check_raw(name, choice, ends);
    Parts values;
    if (texts->any) values.push_back(after_name(syntax_.text_key, marks_.text_without(ends)));
    if (!texts->choices.empty()) {
      values.push_back(after_name(syntax_.text_key, {.kind = Kind::kChoice, .choices = texts->choices}));
    }
    if (texts->null) values.push_back(after_name(syntax_.json_key, {.kind = Kind::kText, .text = "null"}));
    return values;
  }

  // In syntaxes whose strings have quotes.
  ConstraintSource value(const std::string& name, const Json& property) const {
    if (syntax_.shape == CallShape::kPython) {
      if (is_any_of_type(property, "boolean")) return {.kind = Kind::kChoice, .choices = {"True", "False"}};
      return json_value(name, property);
    }
    const std::vector<std::string_view> ends = {syntax_.quote};
    Parts quoted = marks_.split(syntax_.quote);
    if (is_any_of_type(property, "string")) {
      quoted.push_back(marks_.text_without(ends));
    } else if (std::vector<std::string> texts = string_values(property); !texts.empty()) {
      for (const std::string& choice : texts) check_raw(name, choice, ends);
      quoted.push_back({.kind = Kind::kChoice, .choices = std::move(texts)});
    } else {
      return json_value(name, property);
    }
    append(quoted, marks_.split(syntax_.quote));
    return sequence(std::move(quoted));
  }

  // A text that stands there without quotes must not be mistaken for something else.
  void check_raw(const std::string& name, const std::string& text, const std::vector<std::string_view>& ends) const {
    const bool edge = text.starts_with('\n') || text.ends_with('\n');
    const bool ended = std::ranges::any_of(
        ends, [&](std::string_view end) { return !end.empty() && text.find(end) != std::string::npos; });
    if (edge || ended) throw cannot_follow("the value " + Json(text).dump() + " of " + name);
  }

  // Of a property alone, which may refer to definitions of the whole schema.
  ConstraintSource json_value(const std::string& name, const Json& property) const {
    Json schema = property;
    for (const char* key : {"$defs", "definitions", "$schema"}) {
      if (schema.is_object() && schema_.contains(key)) schema[key] = schema_[key];
    }
    return json(schema, label_ + ".properties." + name);
  }

  const CallSyntax& syntax_;
  const CallForm& form_;
  const MarkTexts marks_;
  const Json& schema_;
  const std::string& label_;
  std::vector<Argument> arguments_;
};

}  // namespace

ConstraintSource call_arguments(const AnswerFormat& format, const Json& parameters, const std::string& label) {
  const CallShape shape = format.tools->syntax.shape;
  if (shape == CallShape::kJson || shape == CallShape::kHarmony) {
    if (!parameters.is_object()) return {.kind = Kind::kJsonObject};
    Json schema = parameters;
    if (!schema.contains("type")) schema["type"] = "object";
    return json(schema, label);
  }
  return NamedArguments(format, parameters.is_object() ? parameters : Json::object(), label).all();
}

}  // namespace quire
