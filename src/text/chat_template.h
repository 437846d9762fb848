// Chat templates: the Jinja program a model ships with, turning a list of messages into its prompt.
//
//   ChatTemplate chat = ChatTemplate::parse(source, "Qwen3-0.6B");
//   std::string prompt = chat.render({.messages = body["messages"], .special_tokens = {{"bos_token", "<s>"}}});
//
// Renders what transformers' apply_chat_template renders, byte for byte, from a bounded Jinja.
#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "jinja/template_error.h"

namespace quire {

struct ChatInput {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();  // [{"role": …, "content": …, …}, …]
  nlohmann::ordered_json tools = nullptr;                             // array of tools or null; key order is kept
  nlohmann::ordered_json documents = nullptr;                         // array or null
  bool add_generation_prompt = true;
  // The last message is not closed: the prompt ends where its content ends. Excludes add_generation_prompt (an Error).
  bool continue_final_message = false;
  nlohmann::ordered_json special_tokens = nlohmann::ordered_json::object();  // variables: {"bos_token": "<s>", …}
  nlohmann::ordered_json kwargs = nlohmann::ordered_json::object();  // chat_template_kwargs: more variables, they win
  // Whether "<|im_end|>" in a message is that token (encode_chat_prompt) or, as by default, plain text.
  bool parse_special = false;
  std::optional<std::chrono::local_seconds> now = {};  // what strftime_now reads; the local wall clock when absent
};

namespace jinja {
struct Program;
}

// Parsed once, then immutable: render may be called by any number of threads. Copies share the program.
class ChatTemplate {
 public:
  // `name` stands in error messages (a model's name or a file's path). Throws Error on a syntax error, with its line.
  static ChatTemplate parse(std::string source, std::string name);

  // The prompt as UTF-8 text. Throws TemplateError (see above), or Error when the template fails, uses something that
  // is not there, or exceeds its bounds of steps, depth, memory or output.
  std::string render(const ChatInput& input) const;

  const std::string& source() const;

 private:
  explicit ChatTemplate(std::shared_ptr<const jinja::Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const jinja::Program> program_;
};

}  // namespace quire
