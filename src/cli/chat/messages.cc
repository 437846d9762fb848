#include "cli/chat/messages.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "json/field.h"

namespace quire {
namespace {

using nlohmann::ordered_json;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace

ordered_json parse_messages(std::string_view text, const std::string& name) {
  ordered_json messages = parse_json(text, name, {.replace_surrogates = true});
  if (!messages.is_array())
    throw invalid("{}: expected a JSON array of messages, found {}", name, messages.type_name());
  if (messages.empty()) throw invalid("{}: the array of messages is empty", name);
  for (size_t i = 0; i < messages.size(); ++i) {
    const ordered_json& message = messages[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
      throw invalid(
          "{}: message {}: expected an object with a role, as in {{\"role\": \"user\", \"content\": \"Hello\"}}", name,
          i);
    }
  }
  return messages;
}

void Conversation::set_system(std::string text) {
  if (has_system()) messages_.erase(0);
  if (!text.empty())
    messages_.insert(messages_.begin(), ordered_json{{"role", "system"}, {"content", std::move(text)}});
}

std::string Conversation::system() const { return has_system() ? messages_[0]["content"].get<std::string>() : ""; }

void Conversation::add(std::string role, std::string content) {
  messages_.push_back(ordered_json{{"role", std::move(role)}, {"content", std::move(content)}});
}

void Conversation::reset() {
  while (messages_.size() > (has_system() ? 1u : 0u)) drop_last();
}

const char* const kChatHelp =
    "/help          list the commands\n"
    "/reset         clear the conversation; the system message stays\n"
    "/system TEXT   set the system message; /system - removes it, /system shows it\n"
    "/stats         speed of this session, how full the context is, and the memory\n"
    "/save FILE     write the conversation as JSON, in the form --messages reads\n"
    "/quit          end the chat (or Ctrl-D)\n"
    "Ctrl-C stops an answer. End a line with \\ to continue it on the next; pasted lines are one message.\n";

namespace {
constexpr std::array<std::pair<std::string_view, ChatCommand::Kind>, 7> kChatCommands = {
    {{"help", ChatCommand::Kind::kHelp},
     {"reset", ChatCommand::Kind::kReset},
     {"system", ChatCommand::Kind::kSystem},
     {"stats", ChatCommand::Kind::kStats},
     {"save", ChatCommand::Kind::kSave},
     {"quit", ChatCommand::Kind::kQuit},
     {"exit", ChatCommand::Kind::kQuit}}};
}  // namespace

std::vector<std::string> chat_command_names() {
  std::vector<std::string> names;
  for (const auto& command : kChatCommands) names.emplace_back(command.first);
  return names;
}

ChatCommand parse_chat_command(std::string_view line) {
  using Kind = ChatCommand::Kind;
  const std::string_view all = trimmed(line);
  if (all.size() < 2 || all[0] != '/') return {Kind::kText, std::string(line)};
  const std::string_view word = all.substr(1, std::min(all.find_first_of(" \t\n"), all.size()) - 1);
  if (word.empty() || !std::all_of(word.begin(), word.end(), is_letter)) return {Kind::kText, std::string(line)};
  for (const auto& [name, kind] : kChatCommands) {
    if (word == name) return {kind, std::string(trimmed(all.substr(1 + word.size())))};
  }
  return {Kind::kUnknown, std::string(word)};
}

}  // namespace quire
