// Tools and calls in a chat's prompt, where the template has a place for them and where it has none.
#pragma once

#include <functional>
#include <string>

#include "parsers/families.h"
#include "text/chat_template.h"

namespace quire {

enum class ToolPlace : uint8_t {
  kVariable,       // the template takes the variable `tools`
  kSystemMessage,  // … the member `tools` of a system message, a string (Phi-4)
  kSystemText,     // none: the generic description, in the system message
  kUserText,       // likewise, and no system messages: in the first message
};

using RenderChat = std::function<std::string(ChatInput)>;  // may throw Error

// Renders chats with a tool of a rare name and looks for it.
ToolPlace find_tool_place(const RenderChat& render);

// Puts `tools` (as in OpenAI's chats, or null) where the template takes them, and brings the messages into the form
// that it takes: calls and results in the history as text if it has no place for them, ids as Mistral's templates want
// them, reasoning under harmony's name.
void place_tools(ChatInput& chat, nlohmann::ordered_json tools, ToolPlace place, const AnswerFormat& format);

}  // namespace quire
