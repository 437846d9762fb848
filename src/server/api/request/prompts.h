// Texts of requests: prompts, and message contents in parts.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/api/request/fields.h"

namespace quire {

inline constexpr size_t kMaxMessages = 100'000;

// Types of the parts of a content.
struct PartTypes {
  std::span<const std::string_view> text;          // the parts with text
  std::span<const std::string_view> skipped = {};  // parts to leave out
};
extern const PartTypes kTextParts;  // "text" only

// The texts of a content in parts, one on each line, as vLLM and llama.cpp join them.
std::string join_parts(const JsonField& parts, const PartTypes& types = kTextParts);

// What an assistant's content says. It may also have refusals, which are text, and thoughts.
struct AnswerContent {
  std::string text, thoughts;
};
AnswerContent read_answer_content(const JsonField& content, const PartTypes& types = kTextParts);

// The text of a tool's result, which may be any JSON: parts with text are joined, a string is itself, null is empty, and
// anything else is written as JSON. Images and other media are refused.
std::string read_result(const std::optional<JsonField>& content, const PartTypes& types = kTextParts);

// {"role", "content"} for a chat, from a message that has only text, and "reasoning_content" if it has thoughts.
Json read_text_message(const JsonField& message, std::span<const std::string_view> roles, const PartTypes& types);

// One prompt or several: a text, token ids, a mixture of both, or {"prompt_string": text}.
void read_prompt(ApiDraft& draft, const JsonField& field);
void read_one_text(ApiDraft& draft, const JsonField& field);

TokenIds read_token_ids(const JsonField& field, int vocab_size, size_t at_most);

}  // namespace quire
