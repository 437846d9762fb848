// Messages and prompts: what a request is about.
#include <algorithm>
#include <string>

#include "server/api/error.h"
#include "server/api/fields.h"
#include "server/api/json_fields.h"

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
std::string join_parts(const Json& parts, const std::string& where, const TextParts& allowed = kText) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string part_at = fmt::format("{}[{}]", where, i);
    const Json& part = parts[i];
    if (i > 0) text += '\n';
    if (part.is_string()) {
      text += part.get_ref<const std::string&>();
      continue;
    }
    const auto type = read_object(part, part_at).find("type");
    if (type == part.end()) throw bad_request(part_at, "has no type; {} allowed", allowed.shown);
    if (std::ranges::find(allowed.types, read_string(*type, part_at + ".type")) == allowed.types.end()) {
      throw bad_request(part_at + ".type", "{} is not supported; {}", describe(*type), allowed.shown);
    }
    const auto found = part.find("text");
    if (found == part.end()) throw bad_request(part_at, "has no text");
    text += read_string(*found, part_at + ".text");
  }
  return text;
}

// Clients send arguments as a string of JSON, templates expect the object.
void read_tool_calls(Json& calls, const std::string& where) {
  read_array(calls, where, 1024);
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string function_at = fmt::format("{}[{}].function", where, i);
    read_object(calls[i], fmt::format("{}[{}]", where, i));
    const auto function = calls[i].find("function");
    if (function == calls[i].end()) throw bad_request(function_at, "is missing");
    read_object(*function, function_at);
    const auto name = function->find("name");
    if (name == function->end()) throw bad_request(function_at + ".name", "is missing");
    read_string(*name, function_at + ".name");
    const auto arguments = function->find("arguments");
    if (arguments == function->end() || !arguments->is_string()) continue;
    const std::string arguments_at = function_at + ".arguments";
    const auto& text = arguments->get_ref<const std::string&>();
    Json parsed = text.empty() ? Json::object() : parse_bounded_json(text, arguments_at);
    *arguments = std::move(parsed);
  }
}

void read_message(Json& message, const std::string& where) {
  read_object(message, where);
  const auto role = message.find("role");
  if (role == message.end()) throw bad_request(where + ".role", "is missing");
  const bool assistant = read_string(*role, where + ".role") == "assistant";
  if (role->get_ref<const std::string&>().empty()) throw bad_request(where + ".role", "is empty");

  if (const auto calls = message.find("tool_calls"); calls != message.end() && !calls->is_null()) {
    read_tool_calls(*calls, where + ".tool_calls");
  }
  const std::string content_at = where + ".content";
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) {
    if (!assistant) throw bad_request(content_at, "expected a string or an array of parts, found nothing");
    message["content"] = "";
  } else if (content->is_array()) {
    *content = join_parts(*content, content_at);
  } else if (!content->is_string()) {
    throw bad_request(content_at, "expected a string or an array of parts, found {}", describe(*content));
  }
}

// {"role", "content"} with a text, in the names of chats.
Json read_text_message(const Json& message, const std::string& where, std::span<const std::string_view> roles,
                       const TextParts& allowed) {
  const std::string role_at = where + ".role", content_at = where + ".content";
  read_object(message, where);
  const auto role = message.find("role"), content = message.find("content");
  if (role == message.end()) throw bad_request(role_at, "is missing");
  const std::string& name = read_string(*role, role_at);
  if (std::ranges::find(roles, name) == roles.end()) {
    throw bad_request(role_at, "{} is not allowed; allowed are {}", describe(*role), fmt::join(roles, ", "));
  }
  if (content == message.end()) throw bad_request(content_at, "is missing");
  std::string text;
  if (content->is_array()) {
    text = join_parts(*content, content_at, allowed);
  } else if (content->is_string()) {
    text = content->get<std::string>();
  } else {
    throw bad_request(content_at, "expected a string or an array of parts, found {}", describe(*content));
  }
  return {{"role", name == "developer" ? "system" : name}, {"content", std::move(text)}};
}

}  // namespace

void read_messages(ApiDraft& draft, const Json& value, std::string_view name) {
  if (read_array(value, name, kMaxMessages).empty()) throw bad_request(name, "must have at least one message");
  draft.has_messages = true;
  draft.chat.messages = value;
  for (size_t i = 0; i < value.size(); ++i) read_message(draft.chat.messages[i], fmt::format("messages[{}]", i));
}

void read_text_messages(ApiDraft& draft, const Json& value, std::string_view name) {
  static constexpr std::string_view kRoles[] = {"user", "assistant"};
  if (read_array(value, name, kMaxMessages).empty()) throw bad_request(name, "must have at least one message");
  draft.has_messages = true;
  for (size_t i = 0; i < value.size(); ++i) {
    draft.chat.messages.push_back(read_text_message(value[i], fmt::format("{}[{}]", name, i), kRoles, kText));
  }
  // An answer that the client has begun is gone on with.
  draft.chat.continue_final_message = draft.chat.messages.back()["role"] == "assistant";
}

void read_system(ApiDraft& draft, const Json& value, std::string_view name) {
  if (!value.is_string() && !value.is_array()) {
    throw bad_request(name, "expected a string or an array of text blocks, found {}", describe(value));
  }
  draft.instructions = value.is_string() ? value.get<std::string>() : join_parts(value, std::string(name));
}

void read_items(ApiDraft& draft, const Json& value, std::string_view name) {
  static constexpr std::string_view kRoles[] = {"user", "assistant", "system", "developer"};
  draft.has_messages = true;
  if (value.is_string()) {
    draft.chat.messages.push_back({{"role", "user"}, {"content", value}});
    return;
  }
  if (!value.is_array()) throw bad_request(name, "expected a string or an array of items, found {}", describe(value));
  if (read_array(value, name, kMaxMessages).empty()) throw bad_request(name, "must have at least one item");
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string where = fmt::format("{}[{}]", name, i), type_at = where + ".type";
    const auto type = read_object(value[i], where).find("type");
    if (type != value[i].end() && read_string(*type, type_at) != "message") {
      throw bad_request(type_at, "{} is not supported; \"message\" is", describe(*type));
    }
    draft.chat.messages.push_back(read_text_message(value[i], where, kRoles, kItemText));
  }
}

void read_one_text(ApiDraft& draft, const Json& value, std::string_view name) {
  draft.has_prompt = true;
  draft.prompts.emplace_back(read_string(value, name));
}

void read_prompt(ApiDraft& draft, const Json& value, std::string_view name) {
  draft.has_prompt = true;
  const auto ids = [&](const Json& list) {
    if (list.empty()) throw bad_request(name, "a prompt of token ids must not be empty");
    draft.prompts.emplace_back(read_token_ids(list, name, draft.limits.vocab_size, kMaxBodyValues));
  };
  if (value.is_string()) {
    draft.prompts.emplace_back(value.get<std::string>());
    return;
  }
  if (!value.is_array()) {
    throw bad_request(name, "expected a string, an array of strings, token ids or arrays of token ids, found {}",
                      describe(value));
  }
  if (value.empty()) throw bad_request(name, "must not be an empty array");
  if (value[0].is_number()) return ids(value);
  for (const Json& element : read_array(value, name, kMaxPrompts)) {
    if (element.is_string()) {
      draft.prompts.emplace_back(element.get<std::string>());
    } else if (element.is_array()) {
      ids(element);
    } else {
      throw bad_request(name, "expected a string or an array of token ids as element {}, found {}",
                        draft.prompts.size(), describe(element));
    }
  }
}

}  // namespace quire
