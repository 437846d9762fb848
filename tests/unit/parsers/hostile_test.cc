// Answers that are long, deep, many or broken: nothing is lost, and the work stays linear.
#include <gtest/gtest.h>

#include <random>

#include "unit/parsers/recorded.h"

namespace quire {
namespace {

RecordedMessage read_hostile(const std::string& tools, const std::string& answer, size_t chunk = 64) {
  const auto parser = make_answer_parser(format_of(tools, "none", answer), {.tools = recorded_tools()});
  std::vector<AnswerPiece> pieces;
  const std::string text = framed(answer);
  for (size_t at = 0; at < text.size(); at += chunk) parser->add(std::string_view(text).substr(at, chunk), pieces);
  parser->end(true, pieces);
  return joined(pieces);
}

std::string repeated(std::string_view text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

TEST(HostileAnswers, KeepCallsBeyondTheBoundAsText) {
  const std::string call = R"(<tool_call>{"name": "time", "arguments": {}}</tool_call>)";
  const RecordedMessage message = read_hostile("hermes", repeated(call, kMaxCalls + 2));
  EXPECT_EQ(message.calls.size(), size_t{kMaxCalls});
  EXPECT_EQ(message.text, call + call);
}

TEST(HostileAnswers, KeepNamesBeyondTheBoundAsText) {
  for (const std::string tools : {"hermes", "json"}) {
    const std::string call =
        "<tool_call>{\"name\": \"" + std::string(kMaxCallName + 1, 'n') + "\", \"arguments\": {}}</tool_call>";
    EXPECT_EQ(read_hostile(tools, call).text, call);
  }
  const std::string tags = "<tool_call><function=" + std::string(kMaxCallName + 1, 'n') + "></function></tool_call>";
  EXPECT_EQ(read_hostile("qwen3_coder", tags).text, tags);
}

TEST(HostileAnswers, KeepWhatIsTooLongForACallAsText) {
  const std::string call =
      "<tool_call>{\"x\": \"" + std::string(kMaxHeld, 'x') + "\", \"name\": \"time\", \"arguments\": {}}</tool_call>";
  EXPECT_EQ(read_hostile("hermes", call).text, call);
}

TEST(HostileAnswers, MayHaveLongAndDeepArguments) {
  const std::string deep = R"({"a": )" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  EXPECT_EQ(read_hostile("hermes", R"(<tool_call>{"name": "time", "arguments": )" + deep + "}</tool_call>")
                .calls.at(0)
                .arguments,
            deep);
  const std::string text(1 << 20, 'x');
  EXPECT_EQ(read_hostile("qwen3_coder",
                         "<tool_call><function=note><parameter=text>" + text + "</parameter></function></tool_call>")
                .calls.at(0)
                .arguments,
            "{\"text\": \"" + text + "\"}");
}

TEST(HostileAnswers, TurnDeepLiteralsIntoStrings) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_EQ(read_hostile("pythonic", "[note(tags=" + deep + ")]").calls.at(0).arguments,
            "{\"tags\": \"" + deep + "\"}");
  EXPECT_EQ(read_hostile("gemma4", "<|tool_call>call:note{tags:" + deep + "}<tool_call|>").calls.at(0).arguments,
            "{\"tags\": \"" + deep + "\"}");
  EXPECT_EQ(read_hostile("qwen3_coder",
                         "<tool_call><function=note><parameter=tags>" + deep + "</parameter></function></tool_call>")
                .calls.at(0)
                .arguments,
            "{\"tags\": \"" + deep + "\"}");
}

TEST(HostileAnswers, OfHalfMarksAreText) {
  for (const ToolFamily& family : tool_families()) {
    if (family.syntax.shape == CallShape::kHarmony) continue;
    const std::string_view mark = family.syntax.opens.front();
    const std::string answer = repeated(mark.substr(0, mark.size() - 1), 20'000);
    EXPECT_EQ(read_hostile(std::string(family.name), answer).text, answer) << family.name;
  }
}

TEST(HostileAnswers, OfOpeningMarksAreText) {
  for (const ToolFamily& family : tool_families()) {
    if (family.syntax.shape == CallShape::kHarmony) continue;
    const std::string answer = repeated(std::string(family.syntax.opens.front()) + "!", 5'000);
    const RecordedMessage message = read_hostile(std::string(family.name), answer);
    EXPECT_EQ(message.text, answer) << family.name;
    EXPECT_TRUE(message.calls.empty());
  }
}

void expect_objects(const RecordedMessage& message, const std::string& answer) {
  for (const RecordedCall& call : message.calls) {
    EXPECT_TRUE(call.ended) << answer;
    try {
      EXPECT_TRUE(parse_json(call.arguments, "").is_object()) << call.arguments << " of " << answer;
    } catch (const JsonError& e) {
      ADD_FAILURE() << e.what() << ": " << call.arguments << " of " << answer;
    }
  }
}

// Marks and pieces of JSON in any order, in every family: the pieces stay in order, splits change nothing, and the
// arguments of calls are objects.
TEST(HostileAnswers, OfShuffledPartsMeanTheSameInAnyChunks) {
  for (const ToolFamily& family : tool_families()) {
    const CallSyntax& s = family.syntax;
    std::vector<std::string> parts = {
        "{",    "}",     "[", "]",  "\"",    "\"name\": \"time\"",  "\"arguments\": {", ", ",      "\n",
        "time", "(x=1)", "a", "\\", "call:", " to=functions.time ", "\"arguments\": ",  "\"x\": ", "1,",
        "'",    "(y='"};
    for (const auto* marks : {&s.opens, &s.opens, &s.closes, &s.name_ends})
      parts.insert(parts.end(), marks->begin(), marks->end());
    for (const std::string_view mark :
         {s.function, s.name_end, s.function_end, s.key, s.key_end, s.value, s.value_end, s.quote}) {
      if (!mark.empty()) parts.emplace_back(mark);
    }
    std::mt19937 random(7);
    for (int round = 0; round < 400; ++round) {
      std::string answer;
      for (int i = 0; i < 24; ++i) answer += parts[random() % parts.size()];
      const RecordedMessage whole = read_hostile(std::string(family.name), answer, answer.size());
      expect_objects(whole, answer);
      ASSERT_EQ(read_hostile(std::string(family.name), answer, 1), whole) << family.name << ": " << answer;
      ASSERT_EQ(read_hostile(std::string(family.name), answer, 1 + random() % 9), whole)
          << family.name << ": " << answer;
    }
  }
}

}  // namespace
}  // namespace quire
