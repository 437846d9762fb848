// OpenAI's chats, and completions, whose answers differ only in their names for things.
#pragma once

#include <memory>

#include "server/api/answer.h"
#include "server/api/fields.h"

namespace quire {

// The messages of a chat: roles, contents and tool calls are checked, contents of several parts joined.
void read_chat_messages(ApiDraft& draft, const JsonField& field);

// "stop", "length", "tool_calls" or, for the deprecated functions, "function_call".
std::string_view chat_finish_name(const ResponseHead& head, FinishReason reason, bool called);

// Answers to chats and completions.
std::unique_ptr<Answer> chat_body(ResponseHead head, TokenBytes token_bytes);
std::unique_ptr<Answer> chat_stream(ResponseHead head, TokenBytes token_bytes);

}  // namespace quire
