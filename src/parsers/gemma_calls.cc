// Gemma's calls: <|tool_call>call:weather{city:<|"|>Oslo<|"|>,days:3}<tool_call|>
#include <algorithm>
#include <iterator>
#include <utility>

#include "parsers/call_stage.h"
#include "parsers/value_json.h"

namespace quire {
namespace {

constexpr std::string_view kCall = "call:";
constexpr char kQuote = '\xff';  // stands for the mark around strings: no text has this byte

class GemmaCalls final : public CallStage {
 public:
  GemmaCalls(const AnswerFormat& format, const AnswerOptions& options, PieceWriter& writer)
      : CallStage(writer, options.show_special),
        quote_mark_(format.tools->syntax.quote),
        opens_(make_marks(format.tools->syntax.opens, format.tokens)),
        closes_(make_marks(format.tools->syntax.closes, format.tokens)),
        inside_(closes_),
        in_string_(make_marks({quote_mark_}, format.tokens)) {
    inside_.push_back(in_string_.front());
    for (const Mark& mark : closes_) {
      if (mark.token) in_string_.push_back(mark);
    }
    std::ranges::copy_if(in_string_, std::back_inserter(in_json_string_), &Mark::token);
  }

 protected:
  std::span<const Mark> marks() const override {
    return state_ == State::kText ? opens_ : in_json_ ? in_json_string_ : quoted_ ? in_string_ : inside_;
  }

  size_t plain(std::string_view run) override {
    if (state_ == State::kText) {
      writer_.text(run);
      return run.size();
    }
    if (state_ == State::kArguments) {
      argument(run.front());
    } else {
      before_arguments(run.front());
    }
    return 1;
  }

  void hit(const Mark& mark) override {
    if (state_ == State::kText) {
      hold(mark.text);
      head_.clear();
      state_ = State::kHead;
    } else if (mark.text != quote_mark_) {
      close(mark);
    } else if (state_ == State::kArguments) {
      argument_ += kQuote;
      quoted_ = !quoted_;
    } else if (state_ == State::kHead) {
      hold(mark.text);
      give_up();
    }
  }

  void finish(bool complete) override {
    if (state_ == State::kHead) release_held();
    if (state_ != State::kArguments) return;
    if (complete) {  // the model forgot to close it
      if (quoted_) argument_ += kQuote;
      end_call();
    } else {
      end_argument();
    }
  }

 private:
  enum class State { kText, kHead, kArguments, kAfter };

  void give_up() {
    release_held();
    state_ = State::kText;
  }

  void close(const Mark& mark) {
    if (state_ == State::kHead) {
      hold(mark.text);
      return give_up();
    }
    if (state_ == State::kArguments) end_call();
    state_ = State::kText;
  }

  void before_arguments(char c) {
    if (state_ == State::kAfter) {  // nothing belongs here
      if (kSpace.find(c) == std::string_view::npos) writer_.text({&c, 1});
      return;
    }
    if (!hold({&c, 1}) || head_.size() > 2 * kMaxCallName) return give_up();
    if (c != '{') {
      head_ += c;
      return;
    }
    std::string_view name = trimmed(head_);
    if (name.starts_with(kCall)) name.remove_prefix(kCall.size());
    if (!may_call(name, false)) return give_up();
    drop_held();
    writer_.begin_call(name);
    writer_.arguments("{");
    argument_.clear();
    depth_ = 0;
    first_ = true;
    quoted_ = in_json_ = escape_ = false;
    state_ = State::kArguments;
  }

  void argument(char c) {
    // A string as JSON has it, where a value may begin.
    if (in_json_) {
      in_json_ = escape_ || c != '"';
      escape_ = !escape_ && c == '\\';
    } else if (!quoted_ && c == '"') {
      const std::string_view before = trimmed(argument_);
      in_json_ = !before.empty() && std::string_view(":,[{").find(before.back()) != std::string_view::npos;
    } else if (!quoted_) {
      if (depth_ == 0 && c == '}') {
        end_call();
        return;
      }
      if (depth_ == 0 && c == ',') return end_argument();
      if (c == '{' || c == '[') ++depth_;
      if (c == '}' || c == ']') --depth_;
    }
    argument_ += c;
  }

  void end_argument() {
    const std::string argument = std::exchange(argument_, {});
    if (trimmed(argument).empty()) return;
    const size_t colon = argument.find(':');
    std::string key(trimmed(std::string_view(argument).substr(0, colon)));
    std::erase(key, kQuote);
    std::string text = colon == std::string::npos ? "" : argument.substr(colon + 1);
    std::string value = gemma_value(text, kQuote).value_or("");
    if (value.empty()) {  // not of the syntax: the text as it is
      std::erase(text, kQuote);
      value = untyped_value(text);
    }
    writer_.arguments((first_ ? "" : ", ") + json_quoted(key) + ": " + value);
    first_ = false;
  }

  void end_call() {
    end_argument();
    writer_.arguments("}");
    writer_.end_call();
    quoted_ = false;
    state_ = State::kAfter;
  }

  const std::string_view quote_mark_;
  Marks opens_, closes_, inside_, in_string_, in_json_string_;
  State state_ = State::kText;
  bool quoted_ = false, in_json_ = false, escape_ = false, first_ = true;
  int64_t depth_ = 0;
  std::string head_, argument_;
};

}  // namespace

std::unique_ptr<Stage> gemma_calls(const AnswerFormat& format, const AnswerOptions& options, PieceWriter& writer) {
  return std::make_unique<GemmaCalls>(format, options, writer);
}

}  // namespace quire
