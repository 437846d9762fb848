#include "server/api/answer_reader.h"

namespace quire {

AnswerReader::AnswerReader(std::shared_ptr<const AnswerReading> reading, int choices)
    : reading_(std::move(reading)), choices_(static_cast<size_t>(choices)) {
  if (!reading_) return;
  for (Choice& choice : choices_) {
    choice.parser = make_answer_parser(reading_->format, reading_->options);
    choice.thinking = reading_->options.inside_thought;
  }
}

std::span<const AnswerPiece> AnswerReader::read(int index, const Output& output) {
  pieces_.clear();
  if (!reading_) {
    if (!output.text.empty()) pieces_.push_back({.text = output.text});
    return pieces_;
  }
  Choice& choice = choices_[static_cast<size_t>(index)];
  choice.parser->add(output.text, pieces_);
  if (output.finish != FinishReason::kNone) choice.parser->end(output.finish == FinishReason::kStop, pieces_);
  for (const AnswerPiece& piece : pieces_) {
    choice.thinking = piece.kind == AnswerPiece::kReasoning;
    choice.called |= piece.kind == AnswerPiece::kCallBegin;
  }
  if (choice.thinking) reasoning_tokens_ += static_cast<int>(output.tokens.size());
  std::erase_if(pieces_, [&](const AnswerPiece& piece) {
    return piece.kind == AnswerPiece::kReasoning ? !reading_->include_reasoning
                                                 : piece.call > 0 && !reading_->parallel_tool_calls;
  });
  return pieces_;
}

}  // namespace quire
