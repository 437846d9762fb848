#include "server/api/request/structured_output.h"

#include <utility>

#include "grammar/limits.h"
#include "grammar/schema/closed_schema.h"
#include "json/empty_objects.h"
#include "server/api/answer/answer.h"
#include "server/api/error.h"

namespace quire {
namespace {

using Kind = ConstraintSource::Kind;

constexpr size_t kMostChoices = 4096;

void constrain(ApiDraft& draft, const JsonField& field, ConstraintSource source) {
  if (draft.constraint_source) {
    throw field.error("cannot be combined with {}: give one kind of structured output", draft.constraint_field);
  }
  source.label = field.path();
  draft.constraint_source = std::move(source);
  draft.constraint_field = field.path();
}

// Bytes of a value as compact JSON, about; stops beyond `most`.
size_t json_bytes(const Json& value, size_t most) {
  size_t bytes = value.is_string() ? value.get_ref<const std::string&>().size() + 2 : 4;
  if (value.is_object()) {
    for (const auto& [key, member] : value.get_ref<const Json::object_t&>()) {
      if (bytes > most) break;
      bytes += key.size() + 3 + json_bytes(member, most - bytes);
    }
  } else if (value.is_array()) {
    for (const Json& element : value) {
      if (bytes > most) break;
      bytes += json_bytes(element, most - bytes);
    }
  }
  return bytes;
}

// A schema: an object, a boolean, or the text of one.
void constrain_to_schema(ApiDraft& draft, const JsonField& schema) {
  const Json& json = schema.json();
  if (!json.is_object() && !json.is_boolean() && !json.is_string() && !is_empty_list(json)) {
    throw schema.error("expected a JSON Schema, found {}", describe(json));
  }
  const size_t most = grammar::Limits().bytes;  // the compiler would refuse more, but after copies of it
  if (json_bytes(json, most) > most) throw schema.error("is larger than {} bytes, the most of a schema", most);
  Json parsed = with_empty_objects(json.is_string() ? schema.parsed() : json);
  constrain(draft, schema, {.kind = Kind::kJsonSchema, .text = dump(grammar::closed_schema(std::move(parsed)))});
}

void constrain_to_text(ApiDraft& draft, const JsonField& field, Kind kind) {
  const std::string& text = field.string();
  if (text.empty()) throw field.error("must not be empty");
  constrain(draft, field, {.kind = kind, .text = text});
}

// {"type": "json_schema", …}, whose schema is a member of `holder`.
void constrain_to_format(ApiDraft& draft, const JsonField& format, std::string_view holder) {
  const std::string type = format.object().get<std::string>("type");
  if (type == "text") return;
  if (type == "json_object") {
    if (const auto schema = format.find("schema")) return constrain_to_schema(draft, *schema);  // llama.cpp's
    return constrain(draft, format, {.kind = Kind::kJsonObject});
  }
  if (type == "json_schema") {
    const bool nested = !holder.empty() && format.has(holder);
    return constrain_to_schema(draft, (nested ? format.at(holder).object() : format).at("schema"));
  }
  throw format.at("type").error("{} is not supported; use text, json_object or json_schema", describe(type));
}

}  // namespace

void read_response_format(ApiDraft& draft, const JsonField& field) { constrain_to_format(draft, field, "json_schema"); }

void read_output_format(ApiDraft& draft, const JsonField& field) { constrain_to_format(draft, field, {}); }

void read_format(ApiDraft& draft, const JsonField& field) {
  if (field.json() == "") return;
  if (field.json() == "json") return constrain(draft, field, {.kind = Kind::kJsonObject});
  if (!field.json().is_object()) {
    throw field.error("expected \"json\" or a JSON Schema, found {}", describe(field.json()));
  }
  constrain_to_schema(draft, field);
}

void read_guided_json(ApiDraft& draft, const JsonField& field) { constrain_to_schema(draft, field); }

void read_guided_regex(ApiDraft& draft, const JsonField& field) { constrain_to_text(draft, field, Kind::kRegex); }

void read_guided_choice(ApiDraft& draft, const JsonField& field) {
  ConstraintSource source{.kind = Kind::kChoice};
  for (const JsonField& choice : field.elements(kMostChoices)) {
    if (choice.string().empty()) throw choice.error("must not be empty");
    source.choices.push_back(choice.string());
  }
  if (source.choices.empty()) throw field.error("must name at least one choice");
  constrain(draft, field, std::move(source));
}

void read_grammar(ApiDraft& draft, const JsonField& field) {
  if (field.string().empty()) return;  // llama.cpp's default
  constrain_to_text(draft, field, Kind::kGrammar);
}

void read_schema(ApiDraft& draft, const JsonField& field) {
  if (field.json().is_object() && field.json().empty()) return;  // llama.cpp's default
  constrain_to_schema(draft, field);
}

void read_structured_outputs(ApiDraft& draft, const JsonField& field) {
  for (const auto& [name, value] : field.object().members()) {
    if (value.json().is_null()) continue;
    if (name == "json") {
      constrain_to_schema(draft, value);
    } else if (name == "regex") {
      constrain_to_text(draft, value, Kind::kRegex);
    } else if (name == "choice") {
      read_guided_choice(draft, value);
    } else if (name == "grammar") {
      constrain_to_text(draft, value, Kind::kGrammar);
    } else if (name == "json_object") {
      if (value.boolean()) constrain(draft, value, {.kind = Kind::kJsonObject});
    } else if (name == "disable_fallback" || name == "disable_any_whitespace" ||
               name == "disable_additional_properties") {
      if (value.boolean()) throw value.error("true is not supported");
    } else {
      throw value.error("is not supported; use json, json_object, regex, choice or grammar");
    }
  }
}

}  // namespace quire
