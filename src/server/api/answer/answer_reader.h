// Reads the outputs of a response's choices as pieces, for the answers of all APIs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "parsers/answer_parser.h"
#include "quire/engine.h"
#include "sampling/stop.h"

namespace quire {

// How the answers to a request are read; a parser for each choice is made from it.
struct AnswerReading {
  AnswerFormat format;
  AnswerOptions options;
  bool parallel_tool_calls = true;  // false: calls after the first are left out
  bool include_reasoning = true;    // false: reasoning is left out
  bool thought_over = false;        // the prompt ends after a thought
  // Stop strings concern the answer's text, not thoughts and calls.
  std::vector<StopString> stops = {};
  bool include_stop = false;  // the stop string is part of the answer
  int min_tokens = 0;         // until then stop strings do not count
};

// Reads one choice as pieces, up to a stop string in its text. The engine reads it in the same way to know where to end,
// so both must see the same text.
class PieceReader {
 public:
  explicit PieceReader(std::shared_ptr<const AnswerReading> reading);

  // counts: min_tokens are generated. After a stop string nothing is appended.
  void add(std::string_view text, bool counts, std::vector<AnswerPiece>& out);
  void end(bool complete, std::vector<AnswerPiece>& out);
  std::optional<size_t> stop() const { return stop_; }  // the index of the stop string that was found

 private:
  void pass_on(bool counts, std::vector<AnswerPiece>& out);

  std::shared_ptr<const AnswerReading> reading_;
  std::unique_ptr<AnswerParser> parser_;
  StopMatcher matcher_;
  std::optional<size_t> stop_;
  std::vector<AnswerPiece> pieces_;  // before stop strings are looked for
};

// Request::stop_finder of such answers; empty if they have no stop strings.
std::function<std::unique_ptr<StopFinder>()> stop_finder(std::shared_ptr<const AnswerReading> reading);

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
    std::unique_ptr<PieceReader> reader;
    int tokens = 0;
    bool called = false;
    bool thinking = false;  // the last piece was reasoning
  };

  std::shared_ptr<const AnswerReading> reading_;
  std::vector<Choice> choices_;
  std::vector<AnswerPiece> pieces_;
  int reasoning_tokens_ = 0;
};

}  // namespace quire
