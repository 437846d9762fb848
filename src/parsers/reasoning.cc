#include "parsers/reasoning.h"

#include <utility>

namespace quire {
namespace {

class Reasoning final : public MarkedStage {
 public:
  Reasoning(const AnswerFormat& format, const AnswerOptions& options, PieceWriter& writer, Stage& next)
      : family_(*format.reasoning),
        show_special_(options.show_special),
        writer_(writer),
        next_(next),
        opens_(make_marks({family_.open}, format.tokens)),
        closes_(make_marks({family_.close}, format.tokens)),
        answer_(make_marks({family_.answer_open, family_.answer_close}, format.tokens)),
        tokens_(answer_) {
    if (opens_.front().token) tokens_.push_back(opens_.front());
    opens_.insert(opens_.end(), answer_.begin(), answer_.end());
    if (options.inside_thought || (format.starts_inside && !options.continues)) {
      state_ = State::kThought;
    } else if (options.continues) {
      state_ = State::kText;
    }
  }

 protected:
  std::span<const Mark> marks() const override {
    return state_ == State::kStart ? opens_ : state_ == State::kThought ? closes_ : tokens_;
  }

  size_t plain(std::string_view run) override {
    if (state_ == State::kThought) {
      think(run);
    } else if (state_ == State::kStart && run.find_first_not_of(kSpace) == std::string_view::npos) {
      space_ += run;
    } else {
      begin_text();
      next_.text(run);
    }
    return run.size();
  }

  void hit(const Mark& mark) override {
    if (mark.text == family_.open) {
      if (state_ == State::kStart) space_.clear();
      state_ = State::kThought;
      label_ = family_.label;
    } else if (mark.text == family_.close) {
      drop_label(true);
      state_ = State::kText;
      writer_.end_reasoning();
    } else if (mark.text == family_.answer_open) {
      writer_.start_text();
    }  // answer_close has no meaning of its own
  }

  void other(const AnswerToken& token) override {
    if (state_ != State::kThought) {
      begin_text();
      next_.token(token);
    } else if (token.shown || show_special_) {
      think(token.text);
    }
  }

  void finish(bool complete) override {
    drop_label(complete);
    if (state_ == State::kStart) begin_text();
    next_.end(complete);
  }

 private:
  enum class State { kStart, kThought, kText };

  void begin_text() {
    state_ = State::kText;
    if (!space_.empty()) next_.text(std::exchange(space_, {}));
  }

  void think(std::string_view run) {
    while (!label_.empty() && !run.empty()) {
      if (run.front() != label_.front()) {
        drop_label(false);
        break;
      }
      label_.remove_prefix(1);
      run.remove_prefix(1);
    }
    writer_.reasoning(run);
  }

  // The part of the label that was seen so far is text of the thought unless it is the whole label.
  void drop_label(bool complete) {
    const std::string_view seen = family_.label.substr(0, family_.label.size() - label_.size());
    if (!label_.empty() && !(complete && label_ == "\n")) writer_.reasoning(seen);
    label_ = {};
  }

  const ReasoningFamily& family_;
  const bool show_special_;
  PieceWriter& writer_;
  Stage& next_;
  Marks opens_, closes_, answer_, tokens_;
  State state_ = State::kStart;
  std::string space_;       // at the answer's start: left out before a thought
  std::string_view label_;  // the rest that is still expected
};

}  // namespace

std::unique_ptr<Stage> reasoning_stage(const AnswerFormat& format, const AnswerOptions& options, PieceWriter& writer,
                                       Stage& next) {
  return std::make_unique<Reasoning>(format, options, writer, next);
}

}  // namespace quire
