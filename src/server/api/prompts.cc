#include "server/api/prompts.h"

#include <algorithm>

#include "server/api/error.h"
#include "server/endpoints/provider_content.h"

namespace quire {
namespace {

constexpr std::string_view kTextType[] = {"text"};

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

}  // namespace

const PartTypes kTextParts{kTextType};

std::string join_parts(const JsonField& parts, const PartTypes& types) {
  std::string text;
  bool first = true;
  for (const JsonField& part : parts.elements()) {
    std::string line;
    if (part.json().is_string()) {
      line = part.string();
    } else if (auto document = document_text(part)) {
      line = std::move(*document);
    } else {
      const auto type = part.find("type");
      if (!type) throw part.error("has no type; supported: {}", one_of(types.text));
      if (contains(types.skipped, type->string())) continue;
      if (!contains(types.text, type->string())) {
        throw type->error("{} is not supported; supported: {}", describe(type->json()), one_of(types.text));
      }
      if (!part.has("text")) throw part.error("has no text");
      line = part.at("text").string();
    }
    if (!first) text += '\n';
    text += line;
    first = false;
  }
  return text;
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
  return {{"role", name == "developer" ? "system" : name},
          {"content", content.json().is_array() ? join_parts(content, types) : content.string()}};
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
