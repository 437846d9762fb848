// A conversation, and what a line typed into it means.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace quire {

// A JSON array of messages, each an object with a role. `name` stands in messages. Throws Error.
nlohmann::ordered_json parse_messages(std::string_view text, const std::string& name);

// The messages as a chat template takes them: at most one system message, first.
class Conversation {
 public:
  const nlohmann::ordered_json& messages() const { return messages_; }

  void set_system(std::string text);  // replaces the one there is; empty text takes it away
  std::string system() const;         // empty: none
  void add(std::string role, std::string content);
  void drop_last() { messages_.erase(messages_.size() - 1); }
  void reset();  // all but the system message

 private:
  bool has_system() const { return !messages_.empty() && messages_[0]["role"] == "system"; }

  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
};

// "/system You are brief." A slash before anything but a lone word of letters is text: "/etc/passwd" asks about a file.
struct ChatCommand {
  enum class Kind { kText, kHelp, kReset, kSystem, kStats, kSave, kQuit, kUnknown };
  Kind kind = Kind::kText;
  std::string argument;  // the line itself for kText, the command's name for kUnknown
};
ChatCommand parse_chat_command(std::string_view line);
extern const char* const kChatHelp;

}  // namespace quire
