#include "server/api/answer/answer_reader.h"

#include <utility>

namespace quire {

namespace {

class AnswerStops final : public StopFinder {
 public:
  explicit AnswerStops(std::shared_ptr<const AnswerReading> reading) : reader_(std::move(reading)) {}

  std::optional<size_t> add(std::string_view text, bool counts) override {
    reader_.add(text, counts, pieces_);
    pieces_.clear();
    return reader_.stop();
  }
  std::optional<size_t> end(bool complete) override {
    reader_.end(complete, pieces_);
    return reader_.stop();
  }

 private:
  PieceReader reader_;
  std::vector<AnswerPiece> pieces_;
};

}  // namespace

std::function<std::unique_ptr<StopFinder>()> stop_finder(std::shared_ptr<const AnswerReading> reading) {
  if (!reading || reading->stops.empty()) return {};
  return [reading = std::move(reading)] { return std::make_unique<AnswerStops>(reading); };
}

PieceReader::PieceReader(std::shared_ptr<const AnswerReading> reading)
    : reading_(std::move(reading)),
      parser_(make_answer_parser(reading_->format, reading_->options)),
      matcher_(reading_->stops, reading_->include_stop) {}

void PieceReader::add(std::string_view text, bool counts, std::vector<AnswerPiece>& out) {
  if (reading_->stops.empty()) return parser_->add(text, out);
  if (stop_) return;
  parser_->add(text, pieces_);
  pass_on(counts, out);
}

void PieceReader::end(bool complete, std::vector<AnswerPiece>& out) {
  if (reading_->stops.empty()) return parser_->end(complete, out);
  if (stop_) return;
  parser_->end(complete, pieces_);
  pass_on(true, out);
  if (std::string rest = stop_ ? "" : matcher_.finish().text; !rest.empty()) out.push_back({.text = std::move(rest)});
}

void PieceReader::pass_on(bool counts, std::vector<AnswerPiece>& out) {
  for (AnswerPiece& piece : pieces_) {
    std::string text;
    if (piece.kind != AnswerPiece::kText) {
      text = matcher_.finish().text;  // a stop string does not reach across thoughts and calls
    } else if (counts) {
      StopStep step = matcher_.push(piece.text);
      text = std::move(step.text);
      stop_ = step.which;
    } else {
      text = std::move(piece.text);
    }
    if (!text.empty()) out.push_back({.text = std::move(text)});
    if (piece.kind != AnswerPiece::kText) out.push_back(std::move(piece));
    if (stop_) break;
  }
  pieces_.clear();
}

AnswerReader::AnswerReader(std::shared_ptr<const AnswerReading> reading, int choices)
    : reading_(std::move(reading)), choices_(static_cast<size_t>(choices)) {
  if (!reading_) return;
  for (Choice& choice : choices_) {
    choice.reader = std::make_unique<PieceReader>(reading_);
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
  choice.tokens += static_cast<int>(output.tokens.size());
  choice.reader->add(output.text, choice.tokens >= reading_->min_tokens, pieces_);
  if (output.finish != FinishReason::kNone) choice.reader->end(output.finish == FinishReason::kStop, pieces_);
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
