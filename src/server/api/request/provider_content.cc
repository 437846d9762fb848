#include "server/api/request/provider_content.h"

#include <string_view>

namespace quire {
namespace {

void add_line(std::string& text, std::string_view line) {
  if (line.empty()) return;
  if (!text.empty()) text += '\n';
  text += line;
}

// The members of a document or a search result that say what it is.
std::string heading(const JsonField& part) {
  std::string text;
  for (const char* member : {"title", "source", "context"}) {
    if (const auto value = part.find(member); value && value->json().is_string()) add_line(text, value->string());
  }
  return text;
}

std::string texts_of(const JsonField& content) {
  if (content.json().is_string()) return content.string();
  std::string text;
  for (const JsonField& part : content.elements()) {
    if (part.json().is_string()) {
      add_line(text, part.string());
      continue;
    }
    const JsonField type = part.at("type");
    if (type.string() != "text") throw type.error("{} is not supported; documents are text", describe(type.json()));
    add_line(text, part.at("text").string());
  }
  return text;
}

std::string source_text(const JsonField& source) {
  const JsonField type = source.at("type");
  if (type.string() == "text") return source.at("data").string();
  if (type.string() == "content") return texts_of(source.at("content"));
  throw type.error("{} is not supported; documents are text: use \"text\" or \"content\"", describe(type.json()));
}

bool is_media(const JsonField& object) {
  for (const char* member : {"image_url", "file_data"}) {
    if (object.has(member)) return true;
  }
  const auto type = object.find("type");
  return type && type->json().is_string() && (type->string() == "image" || type->string() == "input_image");
}

void add_members(const JsonField& value, std::string_view name, std::string& text);

void add_object(const JsonField& object, std::string& text) {
  if (const auto document = document_text(object)) return add_line(text, *document);
  if (is_media(object)) throw object.error("is not supported; results are text");
  for (const auto& [name, member] : object.members()) {
    if (name != "type" && !name.starts_with("encrypted_")) add_members(member, name, text);
  }
}

// "title: Weather in Oslo"; texts stand alone.
void add_members(const JsonField& value, std::string_view name, std::string& text) {
  const Json& json = value.json();
  if (json.is_null()) return;
  if (json.is_object()) return add_object(value, text);
  if (json.is_array()) {
    for (const JsonField& element : value.elements()) add_members(element, name, text);
    return;
  }
  const std::string shown = json.is_string() ? value.string() : json.dump();
  const bool alone = name.empty() || name == "text" || name == "content";
  if (!shown.empty()) add_line(text, alone ? shown : std::string(name) + ": " + shown);
}

}  // namespace

std::optional<std::string> document_text(const JsonField& part) {
  const auto type = part.find("type");
  if (!type || !type->json().is_string()) return std::nullopt;
  if (type->string() == "tool_reference") return part.at("tool_name").string();
  std::string text;
  if (type->string() == "document") {
    text = heading(part);
    add_line(text, source_text(part.at("source")));
  } else if (type->string() == "search_result") {
    text = heading(part);
    add_line(text, texts_of(part.at("content")));
  } else {
    return std::nullopt;
  }
  return text;
}

std::string result_text(const JsonField& result) {
  std::string text;
  add_members(result, {}, text);
  return text;
}

}  // namespace quire
