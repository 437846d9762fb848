// A conversation, and the commands typed into it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// A JSON array of messages, each an object with a role. Throws Error, whose message begins with `name`.
nlohmann::ordered_json parse_messages(std::string_view text, const std::string& name);

// The messages of a chat template: at most one system message, which comes first.
class Conversation {
 public:
  const nlohmann::ordered_json& messages() const { return messages_; }

  void set_system(std::string text);  // replaces the system message; empty text removes it
  std::string system() const;         // empty: none
  void add(std::string role, std::string content);
  void drop_last() { messages_.erase(messages_.size() - 1); }
  void reset();  // removes all but the system message

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
std::vector<std::string> chat_command_names();

}  // namespace quire
