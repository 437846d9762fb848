// The end of the pipeline: joins pieces, numbers calls, and leaves out white space around calls and thoughts.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "parsers/answer_parser.h"

namespace quire {

inline constexpr std::string_view kSpace = " \t\r\n";

class PieceWriter {
 public:
  explicit PieceWriter(std::shared_ptr<const ToolList> tools) : tools_(std::move(tools)) {}

  void write_to(std::vector<AnswerPiece>& out) {
    out_ = &out;
    first_ = out.size();
  }

  void text(std::string_view run);
  void reasoning(std::string_view run);
  void end_reasoning();  // white space at its end, and before the text that follows, is left out
  void start_text();     // white space before the text that follows is left out
  void new_message();    // begins another message of text, after a blank if no white space separates them
  bool may_begin_call() const { return tools_ && calls_ < kMaxCalls; }
  void begin_call(std::string_view name);
  void arguments(std::string_view json);
  void end_call();
  void end();

  const ToolSchema* tool(std::string_view name) const;  // null: the request has no tool of this name

 private:
  void add(AnswerPiece::Kind kind, std::string_view text, bool joins);

  std::shared_ptr<const ToolList> tools_;
  std::vector<AnswerPiece>* out_ = nullptr;
  size_t first_ = 0;                     // pieces before it belong to the caller
  std::string space_, reasoning_space_;  // held back until text follows
  bool skip_space_ = false;              // until the next text
  bool in_thought_ = false, has_reasoning_ = false;
  char last_ = ' ';        // the last character of the text so far
  bool separate_ = false;  // the next text is another message's
  int calls_ = 0;
};

}  // namespace quire
