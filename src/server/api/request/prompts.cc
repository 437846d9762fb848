#include "server/api/request/prompts.h"

#include <algorithm>

#include "server/api/error.h"
#include "server/api/request/provider_content.h"

namespace quire {
namespace {

constexpr std::string_view kTextType[] = {"text"};
constexpr std::string_view kThoughtTypes[] = {"thinking", "reasoning", "redacted_thinking"};
constexpr std::string_view kMediaTypes[] = {"image",       "image_url", "image_file",  "input_image", "audio_url",
                                            "input_audio", "video_url", "input_video", "input_file"};
// Types that data of a tool may have, too, such as a list of files; media have one of these members.
constexpr std::string_view kNamesOfData[] = {"audio", "document", "file", "video"};
constexpr std::string_view kMediaMembers[] = {"audio", "data", "file", "file_data", "file_id", "source", "video"};

std::string one_of(std::span<const std::string_view> names) {
  return fmt::format("\"{}\"", fmt::join(names, "\", \""));
}

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

TokenIds read_nonempty_ids(const ApiDraft& draft, const JsonField& list) {
  if (list.size() == 0) throw list.error("a prompt of token ids must not be empty");
  return read_token_ids(list, draft.limits.vocab_size, kMaxBodyValues);
}

// [1, "Hello", 2]: consecutive ids make one piece.
MixedPrompt read_mixed(const ApiDraft& draft, const JsonField& list) {
  MixedPrompt pieces;
  for (const JsonField& element : list.elements()) {
    if (element.json().is_string()) {
      pieces.emplace_back(element.string());
      continue;
    }
    const auto id = static_cast<TokenId>(element.integer(0, draft.limits.vocab_size - 1));
    if (pieces.empty() || !std::holds_alternative<TokenIds>(pieces.back())) pieces.emplace_back(TokenIds{});
    std::get<TokenIds>(pieces.back()).push_back(id);
  }
  return pieces;
}

bool is_mixed(const Json& list) {
  const auto number = [](const Json& element) { return element.is_number(); };
  const auto text = [](const Json& element) { return element.is_string(); };
  return std::ranges::any_of(list, number) && std::ranges::any_of(list, text);
}

// llama.cpp's {"prompt_string": text, "multimodal_data": []}, and {"text": text}.
std::string read_object_prompt(const JsonField& object) {
  if (const auto media = object.find("multimodal_data"); media && !media->json().empty()) {
    throw media->error("is not supported; prompts are text");
  }
  if (const auto text = object.find("text")) return text->string();
  return object.at("prompt_string").string();
}

Prompt read_single(const ApiDraft& draft, const JsonField& field) {
  const Json& value = field.json();
  if (value.is_string()) return field.string();
  if (value.is_object()) return read_object_prompt(field);
  if (!value.is_array()) throw field.error("expected a string or an array of token ids, found {}", describe(value));
  if (is_mixed(value)) return read_mixed(draft, field);
  return read_nonempty_ids(draft, field);
}

// The text of a part; nothing: it is to be left out.
std::optional<std::string> read_part(const JsonField& part, const PartTypes& types) {
  if (part.json().is_string()) return part.string();
  const auto type = part.find("type");
  if (!type) throw part.error("has no type; supported: {}", one_of(types.text));
  if (contains(types.skipped, type->string())) return std::nullopt;
  if (!contains(types.text, type->string())) {
    throw type->error("{} is not supported; supported: {}", describe(type->json()), one_of(types.text));
  }
  if (!part.has("text")) throw part.error("has no text");
  return part.at("text").string();
}

void append_line(std::string& text, const std::string& line, bool& first) {
  if (!first) text += '\n';
  text += line;
  first = false;
}

// Of a "thinking" part, as Anthropic and Mistral have it, or a "reasoning" one: a text, or parts with text.
std::string thought_of(const JsonField& part) {
  for (const char* name : {"thinking", "reasoning", "text", "content", "summary"}) {
    const auto thought = part.find(name);
    if (!thought) continue;
    if (!thought->json().is_array()) return thought->string();
    std::string text;
    for (const JsonField& piece : thought->elements()) {
      text += piece.json().is_string() ? piece.string() : piece.get_or<std::string>("text", "");
    }
    if (!text.empty()) return text;
  }
  return "";
}

bool is_text_part(const JsonField& part, const PartTypes& types) {
  const auto type = part.find("type"), text = part.find("text");
  return type && type->json().is_string() && contains(types.text, type->string()) && text && text->json().is_string();
}

// A text document, a search result or the like. Data of a tool may have such a type without these members.
bool is_document(const JsonField& part) {
  const auto type = part.find("type");
  if (!type) return false;
  const auto has = [&](const char* name, const char* member) { return type->json() == name && part.has(member); };
  return has("document", "source") || has("search_result", "content") || has("tool_reference", "tool_name");
}

// A part with an image, sound or file in it, in the shape of any API.
void refuse_media(const JsonField& part, const PartTypes& types) {
  if (!part.json().is_object()) return;
  const auto type = part.find("type");
  if (!type || !type->json().is_string()) return;
  const bool may_be_data = contains(kNamesOfData, type->string());
  if (!contains(kMediaTypes, type->string()) && !may_be_data) return;
  const auto has = [&](std::string_view member) { return part.has(member); };
  if (may_be_data && std::ranges::none_of(kMediaMembers, has)) return;
  throw type->error("{} is not supported; supported: {}", describe(type->json()), one_of(types.text));
}

}  // namespace

const PartTypes kTextParts{kTextType};

std::string join_parts(const JsonField& parts, const PartTypes& types) {
  std::string text;
  bool first = true;
  for (const JsonField& part : parts.elements()) {
    auto line = part.json().is_string() ? std::nullopt : document_text(part);
    if (!line) line = read_part(part, types);
    if (line) append_line(text, *line, first);
  }
  return text;
}

AnswerContent read_answer_content(const JsonField& content, const PartTypes& types) {
  AnswerContent read;
  if (content.json().is_string()) {
    read.text = content.string();
    return read;
  }
  bool first = true;
  for (const JsonField& part : content.elements()) {
    const std::string type = part.json().is_object() ? part.get_or<std::string>("type", "") : "";
    if (contains(kThoughtTypes, type)) {
      read.thoughts += thought_of(part);
    } else if (type == "refusal") {
      append_line(read.text, part.at("refusal").string(), first);
    } else if (const auto line = read_part(part, types)) {
      append_line(read.text, *line, first);
    }
  }
  return read;
}

std::string read_result(const std::optional<JsonField>& content, const PartTypes& types) {
  if (!content) return "";
  if (content->json().is_string()) return content->string();
  if (content->json().is_array()) {
    const std::vector<JsonField> parts = content->elements();
    const auto has_text = [&](const JsonField& part) {
      return part.json().is_string() || (part.json().is_object() && (is_text_part(part, types) || is_document(part)));
    };
    if (std::ranges::all_of(parts, has_text)) return join_parts(*content, types);
    for (const JsonField& part : parts) refuse_media(part, types);
  } else if (content->json().is_object()) {
    if (is_text_part(*content, types)) return content->at("text").string();
    if (is_document(*content)) return document_text(*content).value_or("");
    refuse_media(*content, types);
  }
  return content->json().dump();
}

Json read_text_message(const JsonField& message, std::span<const std::string_view> roles, const PartTypes& types) {
  const JsonField role = message.at("role");
  const std::string& name = role.string();
  if (!contains(roles, name)) {
    throw role.error("{} is not a known role; allowed: {}", describe(role.json()), one_of(roles));
  }
  const JsonField content = message.at("content");
  if (!content.json().is_array() && !content.json().is_string()) {
    throw content.error("expected a string or an array of parts, found {}", describe(content.json()));
  }
  Json made = {{"role", name}, {"content", ""}};
  if (name == "assistant") {
    AnswerContent answer = read_answer_content(content, types);
    made["content"] = std::move(answer.text);
    if (!answer.thoughts.empty()) made["reasoning_content"] = std::move(answer.thoughts);
  } else {
    made["content"] = content.json().is_array() ? join_parts(content, types) : content.string();
  }
  return made;
}

void read_prompt(ApiDraft& draft, const JsonField& field) {
  draft.has_prompt = true;
  const Json& value = field.json();
  if (value.is_string() || value.is_object()) {
    draft.prompts.push_back(read_single(draft, field));
    return;
  }
  if (!value.is_array()) {
    throw field.error("expected a string, an array of strings, token ids or arrays of token ids, found {}",
                      describe(value));
  }
  if (value.empty()) throw field.error("must not be an empty array");
  if (std::ranges::any_of(value, [](const Json& element) { return element.is_number(); })) {
    draft.prompts.push_back(read_single(draft, field));
    return;
  }
  for (const JsonField& element : field.elements(kMaxPrompts)) draft.prompts.push_back(read_single(draft, element));
}

void read_one_text(ApiDraft& draft, const JsonField& field) {
  draft.has_prompt = true;
  draft.prompts.emplace_back(field.string());
}

TokenIds read_token_ids(const JsonField& field, int vocab_size, size_t at_most) {
  TokenIds ids;
  for (const Json& element : field.array(at_most).json()) {
    // Prompts may have a million ids, so only the invalid ones become fields.
    const bool plain = element.is_number_unsigned() && std::cmp_less(element.get<uint64_t>(), vocab_size);
    ids.push_back(
        static_cast<TokenId>(plain ? element.get<int64_t>() : field.at(ids.size()).integer(0, vocab_size - 1)));
  }
  return ids;
}

}  // namespace quire
