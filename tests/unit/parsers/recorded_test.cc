// Every recorded answer means the same message, however it is split.
#include <gtest/gtest.h>

#include <random>

#include "unit/parsers/recorded.h"

namespace quire {
namespace {

std::string show(const RecordedMessage& message) {
  Json calls = Json::array();
  for (const auto& [name, arguments, ended] : message.calls) calls.push_back({name, arguments, ended});
  return Json{{"text", message.text}, {"reasoning", message.reasoning}, {"calls", calls}}.dump(
      -1, ' ', false, Json::error_handler_t::replace);
}

class Recorded : public testing::TestWithParam<RecordedAnswer> {
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

INSTANTIATE_TEST_SUITE_P(Answers, Recorded, testing::ValuesIn(recorded_answers()), [](const auto& info) {
  std::string name = info.param.about;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return std::to_string(info.index) + "_" + name;
});

}  // namespace
}  // namespace quire
