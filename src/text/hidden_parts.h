// Finds what a chat says and its prompt does not: chat templates leave out roles, calls and texts without a word.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "text/chat_template.h"

namespace quire {

struct HiddenPart {
  enum Kind : uint8_t { kContent, kCall, kDocument, kTool };
  Kind kind = kContent;
  size_t index = 0;  // which message, document or tool
  size_t call = 0;   // kCall: which call of the message

  bool in_message() const { return kind == kContent || kind == kCall; }
  bool operator==(const HiddenPart&) const = default;
};

// The first part of `chat` that is not in the prompt which `render` makes of it: a message's text, a call with its
// arguments, a document, a tool. Thoughts are not looked for, because templates leave out earlier ones on purpose.
//
// Renders a copy of the chat with marks at the ends of each text, and looks for them: the texts themselves may be
// trimmed or escaped in the prompt, and short ones occur in it by chance. Takes linear time. Finds nothing if `render`
// throws an Error for `chat` itself.
std::optional<HiddenPart> find_hidden_part(const ChatInput& chat, const RenderChat& render);

// "messages[3].content", with the name of the list of messages.
std::string path_of(const HiddenPart& part, std::string_view messages = "messages");

// For chats that come from no API: throws Error if a part is hidden.
void require_shown(const ChatInput& chat, const RenderChat& render);

}  // namespace quire
