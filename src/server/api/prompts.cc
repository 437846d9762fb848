// Messages and prompts: what a request is about.
#include <algorithm>
#include <string>

#include "server/api/error.h"
#include "server/api/fields.h"

namespace quire {
namespace {

constexpr size_t kMaxMessages = 100'000;

// The types of parts that are text, and how to say so.
struct TextParts {
  std::span<const std::string_view> types;
  std::string_view shown;
};
constexpr std::string_view kTextTypes[] = {"text"}, kItemTypes[] = {"input_text", "output_text"};
constexpr TextParts kText{kTextTypes, "\"text\" is"}, kItemText{kItemTypes, "\"input_text\" and \"output_text\" are"};

// A content of several parts: their texts, a line each, as vLLM and llama.cpp do.
std::string join_parts(const JsonField& parts, const TextParts& allowed = kText) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const JsonField part = parts.at(i);
    if (i > 0) text += '\n';
    if (part.json().is_string()) {
      text += part.string();
      continue;
    }
    const auto type = part.find("type");
    if (!type) throw part.error("has no type; {} allowed", allowed.shown);
    if (std::ranges::find(allowed.types, type->string()) == allowed.types.end()) {
      throw type->error("{} is not supported; {}", describe(type->json()), allowed.shown);
    }
    if (!part.has("text")) throw part.error("has no text");
    text += part.at("text").string();
  }
  return text;
}

// Clients send arguments as a string of JSON, templates expect the object.
void read_tool_calls(const JsonField& calls, Json& out) {
  for (size_t i = 0; i < calls.array(1024).size(); ++i) {
    const JsonField function = calls.at(i).at("function");
    function.at("name").string();
    const auto arguments = function.find("arguments");
    if (!arguments || !arguments->json().is_string()) continue;
    out[i]["function"]["arguments"] =
        arguments->string().empty() ? Json::object() : arguments->parsed({.values = kMaxBodyValues});
  }
}

// Checks a message and puts it into `out`, its copy, as templates expect it.
void read_message(const JsonField& message, Json& out) {
  const JsonField role = message.at("role");
  const bool assistant = role.string() == "assistant";
  if (role.string().empty()) throw role.error("is empty");
  if (const auto calls = message.find("tool_calls")) read_tool_calls(*calls, out["tool_calls"]);
  const auto content = message.find("content");
  if (!content) {
    if (!assistant) {
      throw bad_request(message.path() + ".content", "expected a string or an array of parts, found nothing");
    }
    out["content"] = "";
  } else if (content->json().is_array()) {
    out["content"] = join_parts(*content);
  } else if (!content->json().is_string()) {
    throw content->error("expected a string or an array of parts, found {}", describe(content->json()));
  }
}

// {"role", "content"} with a text, in the names of chats.
Json read_text_message(const JsonField& message, std::span<const std::string_view> roles, const TextParts& allowed) {
  const JsonField role = message.at("role");
  const std::string& name = role.string();
  if (std::ranges::find(roles, name) == roles.end()) {
    throw role.error("{} is not allowed; allowed are {}", describe(role.json()), fmt::join(roles, ", "));
  }
  const JsonField content = message.at("content");
  if (!content.json().is_array() && !content.json().is_string()) {
    throw content.error("expected a string or an array of parts, found {}", describe(content.json()));
  }
  return {{"role", name == "developer" ? "system" : name},
          {"content", content.json().is_array() ? join_parts(content, allowed) : content.string()}};
}

}  // namespace

void read_messages(ApiDraft& draft, const JsonField& field) {
  if (field.array(kMaxMessages).size() == 0) throw field.error("must have at least one message");
  draft.has_messages = true;
  draft.chat.messages = field.json();
  for (size_t i = 0; i < field.size(); ++i) read_message(field.at(i), draft.chat.messages[i]);
}

void read_text_messages(ApiDraft& draft, const JsonField& field) {
  static constexpr std::string_view kRoles[] = {"user", "assistant"};
  if (field.array(kMaxMessages).size() == 0) throw field.error("must have at least one message");
  draft.has_messages = true;
  for (const JsonField& message : field.elements()) {
    draft.chat.messages.push_back(read_text_message(message, kRoles, kText));
  }
  // An answer that the client has begun is gone on with.
  draft.chat.continue_final_message = draft.chat.messages.back()["role"] == "assistant";
}

void read_system(ApiDraft& draft, const JsonField& field) {
  if (!field.json().is_string() && !field.json().is_array()) {
    throw field.error("expected a string or an array of text blocks, found {}", describe(field.json()));
  }
  draft.instructions = field.json().is_string() ? field.string() : join_parts(field);
}

void read_items(ApiDraft& draft, const JsonField& field) {
  static constexpr std::string_view kRoles[] = {"user", "assistant", "system", "developer"};
  draft.has_messages = true;
  if (field.json().is_string()) {
    draft.chat.messages.push_back({{"role", "user"}, {"content", field.string()}});
    return;
  }
  if (!field.json().is_array()) {
    throw field.error("expected a string or an array of items, found {}", describe(field.json()));
  }
  if (field.array(kMaxMessages).size() == 0) throw field.error("must have at least one item");
  for (const JsonField& item : field.elements()) {
    if (const auto type = item.find("type"); type && type->string() != "message") {
      throw type->error("{} is not supported; \"message\" is", describe(type->json()));
    }
    draft.chat.messages.push_back(read_text_message(item, kRoles, kItemText));
  }
}

void read_one_text(ApiDraft& draft, const JsonField& field) {
  draft.has_prompt = true;
  draft.prompts.emplace_back(field.string());
}

TokenIds read_token_ids(const JsonField& field, int vocab_size, size_t at_most) {
  TokenIds ids;
  for (const Json& element : field.array(at_most).json()) {
    // A prompt may have a million: a field is made for the odd ones only.
    const bool plain = element.is_number_unsigned() && std::cmp_less(element.get<uint64_t>(), vocab_size);
    ids.push_back(
        static_cast<TokenId>(plain ? element.get<int64_t>() : field.at(ids.size()).integer(0, vocab_size - 1)));
  }
  return ids;
}

void read_prompt(ApiDraft& draft, const JsonField& field) {
  draft.has_prompt = true;
  const auto ids = [&](const JsonField& list) {
    if (list.size() == 0) throw list.error("a prompt of token ids must not be empty");
    draft.prompts.emplace_back(read_token_ids(list, draft.limits.vocab_size, kMaxBodyValues));
  };
  const Json& value = field.json();
  if (value.is_string()) {
    draft.prompts.emplace_back(field.string());
    return;
  }
  if (!value.is_array()) {
    throw field.error("expected a string, an array of strings, token ids or arrays of token ids, found {}",
                      describe(value));
  }
  if (value.empty()) throw field.error("must not be an empty array");
  if (value[0].is_number()) return ids(field);
  for (const JsonField& element : field.elements(kMaxPrompts)) {
    if (element.json().is_string()) {
      draft.prompts.emplace_back(element.string());
    } else if (element.json().is_array()) {
      ids(element);
    } else {
      throw element.error("expected a string or an array of token ids, found {}", describe(element.json()));
    }
  }
}

}  // namespace quire
