// Chats that a template would refuse or show in part, rewritten so that it shows every message.
#pragma once

#include <string_view>

#include "text/chat_template.h"

namespace quire {

// What a template does with roles and their order. By default it takes all chats.
struct MessageRoles {
  bool developer = true;             // it names the role "developer"
  bool system = true;                // it shows a system message at the start
  bool several_leading = true;       // … and a second one after it
  bool late_system = true;           // … and one between other messages
  bool system_before_end = true;     // … also if the last message is not the user's
  bool user_runs = true;             // it takes two messages of the user in a row
  bool assistant_runs = true;        // likewise of the assistant
  bool counts_across_calls = false;  // roles must alternate, calls and their results not counted
  bool needs_tools = false;          // it takes a chat without tools only with an empty list of them
};

// Renders small chats and looks for their texts. `source` is the template's text.
MessageRoles find_message_roles(std::string_view source, const RenderChat& render);

// Rewrites only what the template would refuse or leave out:
// - "developer" becomes "system"; system messages are joined with the first one, or with a message of the user where
//   the template has no system messages;
// - messages of one role that follow each other are joined;
// - an empty message of the other role separates two that follow each other but for calls and their results.
void fit_chat(ChatInput& chat, const MessageRoles& roles);

}  // namespace quire
