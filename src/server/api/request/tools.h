// Tools in requests: their forms in each API, checked and brought into the form of OpenAI's chats.
#pragma once

#include <map>
#include <string>

#include "server/api/request/fields.h"

namespace quire {

inline constexpr size_t kMaxTools = 512, kMaxToolName = 128;

// Fields of the request.
void read_tools(ApiDraft& draft, const JsonField& field);           // chats: {"type": "function", "function": {…}}
void read_response_tools(ApiDraft& draft, const JsonField& field);  // responses: {"type": "function", "name": …}, and
    // {"type": "namespace", "name": …, "tools": […]}
void read_message_tools(ApiDraft& draft, const JsonField& field);  // messages: {"name": …, "input_schema": …}
void read_functions(ApiDraft& draft, const JsonField& field);      // chats, deprecated: {"name": …}
void read_tool_choice(ApiDraft& draft, const JsonField& field);
void read_message_tool_choice(ApiDraft& draft, const JsonField& field);
void read_function_call(ApiDraft& draft, const JsonField& field);
void read_parallel_tool_calls(ApiDraft& draft, const JsonField& field);

// What the model sees as the name of a function in a namespace.
std::string joined_name(const std::string& name_space, const std::string& name);

// Checks what depends on several of these fields.
void settle_tools(ApiDraft& draft);

// A call in the history: {"id", "type", "function": {"name", "arguments"}}. `arguments` is an object or spells one;
// otherwise it stays a string, as it was written.
Json tool_call_json(const JsonField* id, const JsonField& name, const JsonField* arguments);

// The message of a tool's result. Templates may want the name of the call: `names` has those of the history by id.
using CallNames = std::map<std::string, std::string>;
Json tool_result_json(const CallNames& names, const JsonField& id, std::string text);

}  // namespace quire
