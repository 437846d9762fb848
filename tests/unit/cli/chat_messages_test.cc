#include "cli/chat/messages.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace quire {
namespace {

using Kind = ChatCommand::Kind;

void expect_command(std::string_view line, Kind kind, std::string_view argument) {
  const ChatCommand command = parse_chat_command(line);
  EXPECT_EQ(command.kind, kind) << line;
  EXPECT_EQ(command.argument, argument) << line;
}

TEST(ChatCommand, IsASlashAndAWord) {
  expect_command("/help", Kind::kHelp, "");
  expect_command("  /reset  ", Kind::kReset, "");
  expect_command("/system You are brief. ", Kind::kSystem, "You are brief.");
  expect_command("/system\nYou are\nbrief.", Kind::kSystem, "You are\nbrief.");
  expect_command("/save my chat.json", Kind::kSave, "my chat.json");
  expect_command("/exit", Kind::kQuit, "");
  expect_command("/sytem x", Kind::kUnknown, "sytem");
}

TEST(ChatCommand, LeavesTextAlone) {
  for (const char* line :
       {"Hello", " Hello ", "/", "/etc/passwd holds what?", "/* a comment */", "/9", "and /help", ""}) {
    expect_command(line, Kind::kText, line);
  }
}

TEST(Conversation, KeepsOneSystemMessageAtTheStart) {
  Conversation chat;
  chat.add("user", "Hi");
  chat.set_system("Be brief.");
  chat.set_system("Be long.");
  EXPECT_EQ(chat.messages().dump(), R"([{"role":"system","content":"Be long."},{"role":"user","content":"Hi"}])");
  chat.set_system("");
  EXPECT_EQ(chat.messages().dump(), R"([{"role":"user","content":"Hi"}])");
}

TEST(Conversation, ResetKeepsTheSystemMessage) {
  Conversation chat;
  chat.reset();
  EXPECT_EQ(chat.messages().dump(), "[]");
  chat.set_system("Be brief.");
  chat.add("user", "Hi");
  chat.add("assistant", "Ho");
  chat.reset();
  EXPECT_EQ(chat.messages().dump(), R"([{"role":"system","content":"Be brief."}])");
  EXPECT_EQ(chat.system(), "Be brief.");
}

TEST(Messages, KeepTheOrderOfTheirFields) {
  const auto messages =
      parse_messages(R"([{"role": "user", "content": "b", "a": 1}, {"content": [], "role": "tool"}])", "m.json");
  EXPECT_EQ(messages.dump(), R"([{"role":"user","content":"b","a":1},{"content":[],"role":"tool"}])");
}

TEST(Messages, ErrorsBeginWithTheNameOfTheFile) {
  const std::string deep = "[{\"role\": " + std::string(5000, '[');
  for (const std::string& text : {std::string(""), std::string("{}"), std::string("[]"), std::string("[1]"),
                                  std::string("[{\"content\": \"x\"}]"), std::string("[{\"role\": 1}]"),
                                  std::string("[{\"role\": \"user\"}"), deep}) {
    try {
      parse_messages(text, "m.json");
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_TRUE(std::string_view(e.what()).starts_with("m.json:")) << e.what();
    }
  }
}

TEST(Messages, NameThePlaceOfASyntaxError) {
  try {
    parse_messages("[\n  {\"role\": user}]", "m.json");
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "m.json:2:12: expected a value");
  }
}

}  // namespace
}  // namespace quire
