// Prompts of chats, from JSON texts: what Engine::encode_messages() does, with tools and the template's options.
#pragma once

#include <string>
#include <string_view>

#include "quire/engine.h"

namespace quire {

struct MessagesOptions {
  std::string tools = {};            // a JSON array of tools as in OpenAI's chats; empty: none
  std::string template_kwargs = {};  // a JSON object: variables of the template; empty: none
  // Jinja source that replaces the model's template; empty: the model's. The variables of
  // EngineOptions::chat_template_kwargs are those of the model's alone.
  std::string chat_template = {};
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the prompt ends where the last message ends; excludes add_generation_prompt
};

// The text of a chat's prompt, and its tokens. `messages` is a JSON array: [{"role": "user", "content": "Hello"}, …].
// Throw Error if a text is malformed, there is no chat template, or the template leaves out a message, a call or a tool.
std::string render_messages(const Engine& engine, std::string_view messages, const MessagesOptions& options = {});
TokenIds encode_messages(const Engine& engine, std::string_view messages, const MessagesOptions& options = {});

}  // namespace quire
