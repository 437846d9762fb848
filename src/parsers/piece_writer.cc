#include "parsers/piece_writer.h"

#include <algorithm>
#include <utility>

namespace quire {

void PieceWriter::add(AnswerPiece::Kind kind, std::string_view text, bool joins) {
  const int call = kind >= AnswerPiece::kCallBegin ? calls_ - 1 : 0;
  if (joins && out_->size() > first_ && out_->back().kind == kind && out_->back().call == call) {
    out_->back().text += text;
  } else {
    out_->push_back({kind, call, std::string(text)});
  }
}

void PieceWriter::text(std::string_view run) {
  if (skip_space_) {
    run.remove_prefix(std::min(run.find_first_not_of(kSpace), run.size()));
    if (run.empty()) return;
    skip_space_ = false;
  }
  // White space is dropped if a call follows.
  const size_t end = tools_ ? run.find_last_not_of(kSpace) + 1 : run.size();
  if (end > 0) {
    const bool joined = space_.empty() && kSpace.find(last_) == std::string_view::npos;
    if (std::exchange(separate_, false) && joined) space_ = " ";
    if (!space_.empty()) add(AnswerPiece::kText, std::exchange(space_, {}), true);
    add(AnswerPiece::kText, run.substr(0, end), true);
    last_ = run[end - 1];
  }
  space_ += run.substr(end);
}

void PieceWriter::reasoning(std::string_view run) {
  if (!in_thought_) {
    run.remove_prefix(std::min(run.find_first_not_of(kSpace), run.size()));
    if (run.empty()) return;
    in_thought_ = true;
  }
  const size_t end = run.find_last_not_of(kSpace) + 1;
  if (end > 0) {
    if (!reasoning_space_.empty()) add(AnswerPiece::kReasoning, std::exchange(reasoning_space_, {}), true);
    add(AnswerPiece::kReasoning, run.substr(0, end), true);
    has_reasoning_ = true;
  }
  reasoning_space_ += run.substr(end);
}

void PieceWriter::end_reasoning() {
  reasoning_space_ = has_reasoning_ ? "\n\n" : "";  // before a further thought
  in_thought_ = false;
  start_text();
}

void PieceWriter::start_text() { skip_space_ = true; }

void PieceWriter::new_message() {
  separate_ = true;
  start_text();
}

void PieceWriter::begin_call(std::string_view name) {
  space_.clear();
  skip_space_ = separate_ = false;
  ++calls_;
  add(AnswerPiece::kCallBegin, name, false);
}

void PieceWriter::arguments(std::string_view json) {
  if (!json.empty()) add(AnswerPiece::kCallArguments, json, true);
}

void PieceWriter::end_call() { add(AnswerPiece::kCallEnd, {}, false); }

void PieceWriter::end() {
  if (calls_ == 0 && !space_.empty()) add(AnswerPiece::kText, space_, true);
  space_.clear();
}

const ToolSchema* PieceWriter::tool(std::string_view name) const {
  if (!tools_) return nullptr;
  const auto found = std::ranges::find(*tools_, name, &ToolSchema::name);
  return found == tools_->end() ? nullptr : &*found;
}

}  // namespace quire
