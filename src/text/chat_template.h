// Chat templates: the Jinja template that a model ships with turns a list of messages into its prompt.
//
//   ChatTemplate chat = ChatTemplate::parse(source, "Qwen3-0.6B");
//   std::string prompt = chat.render({.messages = body["messages"], .special_tokens = {{"bos_token", "<s>"}}});
//
// The prompt is byte for byte what transformers' apply_chat_template renders.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "jinja/template.h"

namespace quire {

struct ChatInput {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();  // [{"role": …, "content": …, …}, …]
  nlohmann::ordered_json tools = nullptr;                             // array of tools or null; key order is kept
  nlohmann::ordered_json documents = nullptr;                         // array or null
  bool add_generation_prompt = true;
  // Leaves the last message open: the prompt ends where its content ends. Excludes add_generation_prompt (an Error).
  bool continue_final_message = false;
  nlohmann::ordered_json special_tokens = nlohmann::ordered_json::object();  // variables: {"bos_token": "<s>", …}
  nlohmann::ordered_json kwargs = nlohmann::ordered_json::object();  // more variables, which override the others
  // Whether "<|im_end|>" in a message becomes that token (see encode_chat_prompt); default: plain text.
  bool parse_special = false;
  std::optional<std::chrono::local_seconds> now = {};  // what strftime_now takes; default: the local time
};

// The text of a chat's prompt. Throws Error if the template refuses the chat or fails.
using RenderChat = std::function<std::string(ChatInput)>;

// Parsed once, then immutable: render may be called by any number of threads. Copies share the program.
class ChatTemplate {
 public:
  // `name` identifies the template in errors: a model's name or a file's path. Throws Error for a syntax error, with
  // its line.
  static ChatTemplate parse(std::string source, std::string name) {
    return ChatTemplate(jinja::Template::parse(std::move(source), std::move(name)));
  }

  // The prompt as UTF-8 text. Throws TemplateError if the template refuses the input, and Error if the template fails,
  // uses an undefined value, or exceeds its bounds on steps, depth, memory or output.
  std::string render(const ChatInput& input) const;

  const std::string& source() const { return template_.source(); }

 private:
  explicit ChatTemplate(jinja::Template parsed) : template_(std::move(parsed)) {}
  jinja::Template template_;
};

}  // namespace quire
