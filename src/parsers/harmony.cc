// OpenAI's harmony: messages in channels, <|channel|>analysis<|message|>…<|end|><|start|>assistant …. A call is a
// message to a function: <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>.
#include <utility>

#include "parsers/call_stage.h"

namespace quire {
namespace {

constexpr std::string_view kChannel = "<|channel|>", kMessage = "<|message|>", kConstrain = "<|constrain|>",
                           kRecipient = "to=", kFunctions = "functions.";
constexpr size_t kMaxHeader = 1024;

class Harmony final : public CallStage {
 public:
  Harmony(const AnswerFormat& format, const AnswerOptions& options, PieceWriter& writer)
      : CallStage(writer, options.show_special), marks_(make_marks(format.tools->syntax.closes, format.tokens)) {
    const Marks opens = make_marks(format.tools->syntax.opens, format.tokens);
    marks_.insert(marks_.end(), opens.begin(), opens.end());
    if (options.continues) state_ = State::kText;
  }

 protected:
  std::span<const Mark> marks() const override { return marks_; }

  size_t plain(std::string_view run) override {
    switch (state_) {
      case State::kHeader:
        header_ += run;
        hold(run);
        if (header_.size() > kMaxHeader) {
          release_held();
          said_ = true;
          state_ = State::kText;
        }
        break;
      case State::kText:
        writer_.text(run);
        break;
      case State::kThought:
        writer_.reasoning(run);
        break;
      case State::kCall:
        writer_.arguments(run);
        break;
    }
    return run.size();
  }

  void hit(const Mark& mark) override {
    if (mark.text == kMessage && state_ == State::kHeader) return begin_message();
    if (state_ == State::kHeader) {
      hold(mark.text);
      header_ += mark.text == kChannel || mark.text == kConstrain ? mark.text : " ";
      return;
    }
    if (state_ == State::kThought) writer_.end_reasoning();
    if (state_ == State::kText) writer_.new_message();
    if (state_ == State::kCall) writer_.end_call();
    drop_held();
    header_ = mark.text == kChannel ? mark.text : "";
    state_ = State::kHeader;
  }

  void finish(bool complete) override {
    if (state_ == State::kHeader && (!said_ || !is_header())) {
      release_held();  // never a message: the text as it is
    } else if (state_ == State::kCall && complete) {
      writer_.end_call();
    }
  }

 private:
  enum class State { kHeader, kText, kThought, kCall };

  // Whether what stands outside messages may be the beginning of a header.
  bool is_header() const {
    const std::string_view header = trimmed(header_);
    return header.empty() || header.starts_with("assistant") || header.find(kChannel) != std::string_view::npos;
  }

  // The header: "assistant<|channel|>commentary to=functions.NAME <|constrain|>json".
  void begin_message() {
    const size_t at = header_.find(kRecipient);
    std::string_view name, header = header_;
    if (at != std::string::npos) {
      name = header.substr(at + kRecipient.size());
      name = name.substr(0, std::min(name.find_first_of(" <\t\n"), name.size()));
      if (name.starts_with(kFunctions)) name.remove_prefix(kFunctions.size());
    }
    if (may_call(name, false)) {
      writer_.begin_call(name);
      state_ = State::kCall;
    } else {
      const size_t channel = header.find(kChannel);
      const bool thought = channel != std::string_view::npos &&
                           trimmed(header.substr(channel + kChannel.size())).starts_with("analysis");
      state_ = thought ? State::kThought : State::kText;
      if (!thought) writer_.start_text();
    }
    drop_held();
    said_ = true;
  }

  Marks marks_;
  State state_ = State::kHeader;
  bool said_ = false;  // a message has begun
  std::string header_;
};

class PlainText final : public Stage {
 public:
  PlainText(PieceWriter& writer, bool show_special) : writer_(writer), show_special_(show_special) {}
  void text(std::string_view run) override { writer_.text(run); }
  void token(const AnswerToken& token) override {
    if (token.shown || show_special_) writer_.text(token.text);
  }
  void end(bool) override {}

 private:
  PieceWriter& writer_;
  const bool show_special_;
};

}  // namespace

std::unique_ptr<Stage> harmony(const AnswerFormat& format, const AnswerOptions& options, PieceWriter& writer) {
  return std::make_unique<Harmony>(format, options, writer);
}

std::unique_ptr<Stage> plain_text(const AnswerOptions& options, PieceWriter& writer) {
  return std::make_unique<PlainText>(writer, options.show_special);
}

}  // namespace quire
