// Reads the outputs of a response's choices as pieces, for the answers of all APIs.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parsers/answer_parser.h"
#include "quire/engine.h"

namespace quire {

// How the answers to a request are read; a parser for each choice is made from it.
struct AnswerReading {
  AnswerFormat format;
  AnswerOptions options;
  bool parallel_tool_calls = true;  // false: calls after the first are left out
  bool include_reasoning = true;    // false: reasoning is left out
  bool thought_over = false;        // the prompt ends after a thought
};

class AnswerReader {
 public:
  // `reading` may be null: all is text.
  AnswerReader(std::shared_ptr<const AnswerReading> reading, int choices);

  // The pieces that `output` completes, in order; none of them is an empty text. Valid until the next call.
  std::span<const AnswerPiece> read(int choice, const Output& output);

  bool parses() const { return reading_ != nullptr; }
  bool called(int choice) const { return choices_[static_cast<size_t>(choice)].called; }
  // Of all choices, counted by outputs; nothing if the answers are not read for reasoning.
  std::optional<int> reasoning_tokens() const {
    return reading_ && reading_->format.reasoning ? std::optional(reasoning_tokens_) : std::nullopt;
  }

 private:
  struct Choice {
    std::unique_ptr<AnswerParser> parser;
    bool called = false;
    bool thinking = false;  // the last piece was reasoning
  };

  std::shared_ptr<const AnswerReading> reading_;
  std::vector<Choice> choices_;
  std::vector<AnswerPiece> pieces_;
  int reasoning_tokens_ = 0;
};

}  // namespace quire
