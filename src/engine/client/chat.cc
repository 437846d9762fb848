#include "quire/chat.h"

#include <utility>

#include "base/error.h"
#include "json/parse.h"
#include "text/chat_prompt.h"
#include "text/chat_template.h"
#include "text/hidden_parts.h"
#include "text/message_roles.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

Json parse_messages_json(std::string_view text) {
  Json messages = parse_json(text, "messages", {.replace_surrogates = true});
  if (!messages.is_array() || messages.empty())
    throw invalid("messages must be a list of at least one message, not {}", describe(messages));
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object() || !messages[i].contains("role") || !messages[i]["role"].is_string())
      throw invalid("messages[{}] must be an object with a role, not {}", i, describe(messages[i]));
  }
  return messages;
}

ChatInput chat_of(std::string_view messages, const MessagesOptions& options) {
  if (options.add_generation_prompt && options.continue_final_message)
    throw invalid("continue_final_message cannot be combined with add_generation_prompt");
  ChatInput chat{.messages = parse_messages_json(messages),
                 .add_generation_prompt = options.add_generation_prompt,
                 .continue_final_message = options.continue_final_message};
  if (!options.tools.empty()) {
    chat.tools = parse_json(options.tools, "tools", {.replace_surrogates = true});
    if (!chat.tools.is_array()) throw invalid("tools must be a list, not {}", describe(chat.tools));
  }
  if (!options.template_kwargs.empty()) {
    chat.kwargs = parse_json(options.template_kwargs, "template_kwargs");
    if (!chat.kwargs.is_object()) throw invalid("template_kwargs must be an object, not {}", describe(chat.kwargs));
  }
  return chat;
}

// The template of a request, as the engine has that of the model: it is fitted to the roles that it takes.
class OwnTemplate {
 public:
  OwnTemplate(const Engine& engine, const std::string& source)
      : tokenizer_(engine.tokenizer()), template_(ChatTemplate::parse(source, "chat_template")) {
    for (const auto& [name, token] : {std::pair{"bos_token", tokenizer_.bos()},
                                      {"eos_token", tokenizer_.eos()},
                                      {"unk_token", tokenizer_.unk()},
                                      {"pad_token", tokenizer_.pad()}}) {
      if (token) special_tokens_[name] = tokenizer_.token_text(*token);
    }
    roles_ = find_message_roles(source, [this](ChatInput chat) {
      chat.special_tokens = special_tokens_;
      return template_.render(chat);
    });
  }

  std::string render(ChatInput chat) const { return template_.render(fitted(std::move(chat))); }
  TokenIds encode(ChatInput chat) const { return encode_chat_prompt(template_, tokenizer_, fitted(std::move(chat))); }
  void require_shown(const ChatInput& chat) const {
    quire::require_shown(chat, [this](ChatInput part) { return render(std::move(part)); });
  }

 private:
  ChatInput fitted(ChatInput chat) const {
    chat.special_tokens = special_tokens_;
    fit_chat(chat, roles_);
    return chat;
  }

  const Tokenizer& tokenizer_;
  ChatTemplate template_;
  Json special_tokens_ = Json::object();
  MessageRoles roles_;
};

}  // namespace

std::string render_messages(const Engine& engine, std::string_view messages, const MessagesOptions& options) {
  ChatInput chat = chat_of(messages, options);
  if (!options.chat_template.empty()) {
    const OwnTemplate own(engine, options.chat_template);
    own.require_shown(chat);
    return own.render(std::move(chat));
  }
  engine.require_shown(chat);
  return engine.render(std::move(chat));
}

TokenIds encode_messages(const Engine& engine, std::string_view messages, const MessagesOptions& options) {
  ChatInput chat = chat_of(messages, options);
  if (!options.chat_template.empty()) {
    const OwnTemplate own(engine, options.chat_template);
    own.require_shown(chat);
    return own.encode(std::move(chat));
  }
  engine.require_shown(chat);
  return engine.encode_chat(std::move(chat));
}

}  // namespace quire
