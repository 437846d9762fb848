// OpenAI's chats, and completions, whose answers differ only in their names for things.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "server/api/answer/answer.h"
#include "server/api/definition.h"
#include "server/api/request/fields.h"

namespace quire {

// The messages of a chat: roles, contents and tool calls are checked, contents of several parts joined.
void read_chat_messages(ApiDraft& draft, const JsonField& field);

// "stop", "length", "tool_calls" or, for the deprecated functions, "function_call".
std::string_view chat_finish_name(const ResponseHead& head, FinishReason reason, bool called);

const ApiDefinition& chat_api();
const ApiDefinition& completion_api();
inline bool is_chat(const ResponseHead& head) { return head.request.api == &chat_api(); }

// The fields that make a chat: messages, tools, and how the template continues them.
std::span<const ApiField> chat_input_fields();

// Answers to chats and completions.
std::unique_ptr<Answer> chat_body(ResponseHead head, TokenBytes token_bytes);
std::unique_ptr<Answer> chat_stream(ResponseHead head, TokenBytes token_bytes);

}  // namespace quire
