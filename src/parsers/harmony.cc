// OpenAI's harmony: messages in channels, <|channel|>analysis<|message|>…<|end|><|start|>assistant …. A call is a
// message to a function: <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>.
#include <utility>

#include "parsers/call_stage.h"
#include "parsers/json_mender.h"

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
      case State::kBeforeCall:
        return before_call(run);
      case State::kCall:
        return call(run);
      case State::kAfterCall:
        return after_call(run);
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
    end_message();
    header_ = mark.text == kChannel ? mark.text : "";
    state_ = State::kHeader;
  }

  void finish(bool complete) override {
    if (state_ == State::kHeader) {
      if (!said_ || !is_header()) release_held();  // never a message: the text as it is
    } else if (complete) {
      end_message();
    } else if (state_ == State::kBeforeCall) {
      release_held();
    } else if (state_ == State::kCall) {
      std::string rest;
      mender_.cut(rest);
      writer_.arguments(rest);
    }
  }

 private:
  enum class State { kHeader, kText, kThought, kBeforeCall, kCall, kAfterCall };

  void end_message() {
    if (state_ == State::kThought) writer_.end_reasoning();
    if (state_ == State::kText) writer_.new_message();
    if (state_ == State::kBeforeCall) {  // without arguments
      begin_call();
      writer_.arguments("{}");
      writer_.end_call();
    } else if (state_ == State::kCall) {
      std::string rest;
      mender_.close(rest);
      writer_.arguments(rest);
      writer_.end_call();
    }
    drop_held();
  }

  // Whether what stands outside messages may be the beginning of a header.
  bool is_header() const {
    const std::string_view header = trimmed(header_);
    return header.empty() || header.starts_with("assistant") || header.find(kChannel) != std::string_view::npos;
  }

  // The header: "assistant<|channel|>commentary to=functions.NAME <|constrain|>json".
  void begin_message() {
    hold(kMessage);
    const size_t at = header_.find(kRecipient);
    const std::string_view header = header_;
    name_.clear();
    bool function = false;
    if (at != std::string::npos) {
      std::string_view name = header.substr(at + kRecipient.size());
      name = name.substr(0, std::min(name.find_first_of(" <\t\n"), name.size()));
      function = name.starts_with(kFunctions);
      if (function) name.remove_prefix(kFunctions.size());
      name_ = name;
    }
    said_ = true;
    // Without "functions." it is a tool of OpenAI's own (python, browser.search), unless the request has one of the name.
    if (may_call(name_, !function)) {
      state_ = State::kBeforeCall;
      return;
    }
    const size_t channel = header.find(kChannel);
    const bool thought =
        channel != std::string_view::npos && trimmed(header.substr(channel + kChannel.size())).starts_with("analysis");
    state_ = thought ? State::kThought : State::kText;
    if (!thought) writer_.start_text();
    drop_held();
  }

  void begin_call() {
    drop_held();
    writer_.begin_call(name_);
  }

  // Arguments are an object; what is none is no call.
  size_t before_call(std::string_view run) {
    const char c = run.front();
    if (c == '{') {
      begin_call();
      mender_ = {};
      state_ = State::kCall;
      return call(run);
    }
    if (!hold({&c, 1}) || kSpace.find(c) == std::string_view::npos) {
      writer_.start_text();
      release_held();
      state_ = State::kText;
    }
    return 1;
  }

  size_t call(std::string_view run) {
    std::string mended;
    const size_t size = mender_.add(run, mended);
    writer_.arguments(mended);
    if (mender_.ended()) {
      writer_.end_call();
      state_ = State::kAfterCall;
    }
    return size;
  }

  // Nothing belongs here, but models write a bracket too many.
  size_t after_call(std::string_view run) {
    if (std::string_view(" \t\r\n}]`").find(run.front()) != std::string_view::npos) return 1;
    writer_.start_text();
    state_ = State::kText;
    return plain(run);
  }

  Marks marks_;
  State state_ = State::kHeader;
  bool said_ = false;  // a message has begun
  std::string header_, name_;
  JsonMender mender_;
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
