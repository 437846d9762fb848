#include "parsers/reasoning.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "parsers/call_stage.h"

namespace quire {
namespace {

// Reads what follows the mark of a call inside a thought as calls, without passing them on.
class CallsInThought {
 public:
  CallsInThought(const AnswerFormat& format, AnswerOptions options)
      : options_(std::move(options)), writer_(options_.tools), calls_(call_stage(format, options_, writer_)) {
    writer_.write_to(pieces_);
  }

  struct Run {
    std::string text;
    bool token, shown;
  };

  // False: it is something else than calls.
  bool add(Run run) {
    pass(run, *calls_);
    if (!run.token && !held_.empty() && !held_.back().token) {
      held_.back().text += run.text;
    } else {
      held_.push_back(std::move(run));
    }
    return no_text();
  }

  bool end(bool complete) {
    calls_->end(complete);
    return no_text() && std::ranges::any_of(pieces_, [](const auto& p) { return p.kind == AnswerPiece::kCallBegin; });
  }

  const std::vector<Run>& held() const { return held_; }
  // The pieces of whole calls.
  std::vector<AnswerPiece> whole_calls() const {
    std::vector<AnswerPiece> whole, open;
    for (const AnswerPiece& piece : pieces_) {
      if (piece.kind < AnswerPiece::kCallBegin) continue;
      open.push_back(piece);
      if (piece.kind == AnswerPiece::kCallEnd) whole.insert(whole.end(), open.begin(), open.end()), open.clear();
    }
    return whole;
  }
  static void pass(const Run& run, Stage& stage) {
    if (run.token) {
      stage.token({run.text, run.shown});
    } else {
      stage.text(run.text);
    }
  }

 private:
  bool no_text() {
    for (; seen_ < pieces_.size(); ++seen_) {
      const AnswerPiece& piece = pieces_[seen_];
      if (piece.kind == AnswerPiece::kText && !trimmed(piece.text).empty()) return false;
    }
    return true;
  }

  const AnswerOptions options_;
  PieceWriter writer_;
  std::unique_ptr<Stage> calls_;
  std::vector<AnswerPiece> pieces_;
  size_t seen_ = 0;  // pieces without text
  std::vector<Run> held_;
};

class Reasoning final : public MarkedStage {
 public:
  Reasoning(const AnswerFormat& format, const AnswerOptions& options, PieceWriter& writer, Stage& next)
      : format_(format),
        options_(options),
        family_(*format.reasoning),
        show_special_(options.show_special),
        writer_(writer),
        next_(next),
        opens_(make_marks({family_.open}, format.tokens)),
        closes_(make_marks({family_.close}, format.tokens)),
        answer_(make_marks({family_.answer_open, family_.answer_close}, format.tokens)),
        tokens_(answer_) {
    in_thought_ = closes_;
    if (options.tools && format.tools) {
      const Marks calls = make_marks(format.tools->syntax.opens, format.tokens);
      in_thought_.insert(in_thought_.end(), calls.begin(), calls.end());
    }
    if (opens_.front().token) tokens_.push_back(opens_.front());
    opens_.insert(opens_.end(), answer_.begin(), answer_.end());
    options_.continues = true;  // only marks begin calls there
    if (options.inside_thought || (format.starts_inside && !options.continues)) {
      state_ = State::kThought;
    } else if (options.continues) {
      state_ = State::kText;
    }
  }

 protected:
  std::span<const Mark> marks() const override {
    if (state_ == State::kThought) return calls_ ? closes_ : in_thought_;
    return state_ == State::kStart ? opens_ : tokens_;
  }

  size_t plain(std::string_view run) override {
    if (state_ == State::kThought) {
      if (calls_) run = run.substr(0, 1);  // at any byte it may turn out that the thought goes on
      think_or_call({std::string(run), false, false});
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
      end_calls();
      thought_calls_.clear();
      drop_label(true);
      state_ = State::kText;
      writer_.end_reasoning();
    } else if (mark.text == family_.answer_open) {
      writer_.start_text();
    } else if (state_ == State::kThought) {
      calls_.emplace(format_, options_);
      think_or_call({std::string(mark.text), mark.token, mark_is_shown()});
    }  // answer_close has no meaning of its own
  }

  void other(const AnswerToken& token) override {
    if (state_ != State::kThought) {
      begin_text();
      next_.token(token);
    } else {
      think_or_call({std::string(token.text), true, token.shown});
    }
  }

  void finish(bool complete) override {
    const bool called = calls_ && calls_->end(complete);
    if (!called) end_calls();
    if (called || (complete && !thought_calls_.empty())) {
      drop_label(true);
      writer_.end_reasoning();
      if (complete) call_again();
      for (size_t i = 0; called && i < calls_->held().size(); ++i) CallsInThought::pass(calls_->held()[i], next_);
    }
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

  void think_or_call(CallsInThought::Run run) {
    if (!calls_) return think(run);
    if (!calls_->add(std::move(run))) end_calls();
  }

  // What looked like calls is part of the thought.
  void end_calls() {
    if (!calls_) return;
    for (const auto& run : calls_->held()) think(run);
    for (AnswerPiece& piece : calls_->whole_calls()) thought_calls_.push_back(std::move(piece));
    calls_.reset();
  }

  // The thought was never closed, so its calls were meant, although text followed them.
  void call_again() {
    for (const AnswerPiece& piece : thought_calls_) {
      if (piece.kind == AnswerPiece::kCallBegin && !writer_.may_begin_call()) return;
      if (piece.kind == AnswerPiece::kCallBegin) writer_.begin_call(piece.text);
      if (piece.kind == AnswerPiece::kCallArguments) writer_.arguments(piece.text);
      if (piece.kind == AnswerPiece::kCallEnd) writer_.end_call();
    }
  }

  void think(const CallsInThought::Run& run) {
    if (!run.token || run.shown || show_special_) think(std::string_view(run.text));
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

  const AnswerFormat& format_;
  AnswerOptions options_;  // options for the calls in a thought
  const ReasoningFamily& family_;
  const bool show_special_;
  PieceWriter& writer_;
  Stage& next_;
  Marks opens_, closes_, answer_, tokens_, in_thought_;
  std::optional<CallsInThought> calls_;     // since the mark of a call in a thought
  std::vector<AnswerPiece> thought_calls_;  // before text that went on with the thought
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
