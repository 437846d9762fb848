// Every recorded answer means the same message, however it is split.
#include <gtest/gtest.h>

#include <random>
#include <tuple>

#include "unit/parsers/recorded.h"

namespace quire {
namespace {

std::string show(const RecordedMessage& message) {
  Json calls = Json::array();
  for (const auto& [name, arguments, ended] : message.calls) calls.push_back({name, arguments, ended});
  return Json{{"text", message.text}, {"reasoning", message.reasoning}, {"calls", calls}}.dump(
      -1, ' ', false, Json::error_handler_t::replace);
}

class Recorded : public ::testing::TestWithParam<RecordedAnswer> {
 protected:
  RecordedMessage read(const std::vector<std::string_view>& chunks) const {
    const RecordedAnswer& recorded = GetParam();
    const auto parser = make_answer_parser(
        format_of(recorded.tools, recorded.reasoning, recorded.answer),
        {.tools = recorded.tools == "none" ? nullptr : recorded_tools(), .inside_thought = recorded.inside_thought});
    std::vector<AnswerPiece> pieces;
    for (const std::string_view chunk : chunks) parser->add(chunk, pieces);
    parser->end(recorded.complete, pieces);
    return joined(pieces);
  }
};

TEST_P(Recorded, MeansTheMessage) { EXPECT_EQ(show(read({framed(GetParam().answer)})), show(GetParam().message)); }

TEST_P(Recorded, MeansTheSameAtEverySplitIntoTwo) {
  const std::string answer = framed(GetParam().answer), expected = show(GetParam().message);
  const std::string_view view = answer;
  for (size_t at = 0; at <= view.size(); ++at) {
    ASSERT_EQ(show(read({view.substr(0, at), view.substr(at)})), expected) << "split at " << at;
  }
}

TEST_P(Recorded, MeansTheSameByteByByteAndInRandomChunks) {
  const std::string answer = framed(GetParam().answer), expected = show(GetParam().message);
  for (unsigned seed = 0; seed < 32; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::string_view> chunks;
    for (std::string_view rest = answer; !rest.empty();) {
      const size_t size = seed == 0 ? 1 : std::min<size_t>(rest.size(), random() % (seed + 1));
      chunks.push_back(rest.substr(0, size));
      rest.remove_prefix(size);
    }
    ASSERT_EQ(show(read(chunks)), expected) << "seed " << seed;
  }
}

// What is certain is passed on at once.
TEST(RecordedStreams, PassOnArgumentsAsTheyCome) {
  for (const auto& [tools, beginning, arguments] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {"hermes", R"(<tool_call>{"name": "note", "arguments": {"text": "Once upon)", R"({"text": "Once upon)"},
           {"qwen3_coder", "<tool_call><function=note><parameter=text>Once upon", R"({"text": "Once upon)"},
           {"mistral", R"([TOOL_CALLS]note[ARGS]{"text": "Once upon)", R"({"text": "Once upon)"},
           {"openai", "<|channel|>commentary to=functions.note<|message|>{\"text\": \"Once upon",
            R"({"text": "Once upon)"},
           {"pythonic", "[note(tags=[1], text='Once upon", R"({"tags": [1], "text": )"},
           {"gemma4", "<|tool_call>call:note{tags:[1],text:<|\"|>Once upon", R"({"tags": [1])"}}) {
    const auto parser = make_answer_parser(format_of(tools, tools == "openai" ? "openai_gptoss" : "none", ""),
                                           {.tools = recorded_tools()});
    std::vector<AnswerPiece> pieces;
    parser->add(beginning, pieces);
    const RecordedMessage message = joined(pieces);
    ASSERT_EQ(message.calls.size(), 1u) << tools;
    EXPECT_EQ(message.calls[0].name, "note");
    EXPECT_EQ(message.calls[0].arguments, arguments) << tools;
  }
}

TEST(RecordedStreams, HoldBackOnlyWhatMayBeAMark) {
  const auto parser = make_answer_parser(format_of("hermes", "qwen3", ""), {.tools = recorded_tools()});
  std::vector<AnswerPiece> pieces;
  parser->add("a < b <tool", pieces);
  EXPECT_EQ(joined(pieces).text, "a < b");
}

INSTANTIATE_TEST_SUITE_P(Answers, Recorded, ::testing::ValuesIn(recorded_answers()), [](const auto& info) {
  std::string name = info.param.about;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return std::to_string(info.index) + "_" + name;
});

}  // namespace
}  // namespace quire
