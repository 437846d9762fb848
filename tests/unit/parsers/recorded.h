// Answers as models of each family write them, and the messages that they mean.
#pragma once

#include <string>
#include <vector>

#include "json/parse.h"
#include "parsers/answer_parser.h"

namespace quire {

struct RecordedCall {
  std::string name, arguments;
  bool ended = true;
  bool operator==(const RecordedCall&) const = default;
};

// A whole answer, joined from its pieces.
struct RecordedMessage {
  std::string text, reasoning = {};
  std::vector<RecordedCall> calls = {};
  bool operator==(const RecordedMessage&) const = default;
};

struct RecordedAnswer {
  std::string about;
  std::string tools, reasoning;  // names of the parsers
  std::string answer;            // special tokens as «<|end|>», other added tokens as ‹<tool_call>›
  RecordedMessage message;
  bool complete = true;
  bool inside_thought = false;
};

const std::vector<RecordedAnswer>& recorded_answers();

// «» and ‹› become frames.
std::string framed(std::string_view answer);
std::shared_ptr<const ToolList> recorded_tools();

// A format in which the tokens of `answer` are the vocabulary's.
AnswerFormat format_of(const std::string& tools, const std::string& reasoning, std::string_view answer);

// Joins pieces; fails the test if they are out of order.
RecordedMessage joined(const std::vector<AnswerPiece>& pieces);

}  // namespace quire
