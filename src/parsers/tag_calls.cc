// Calls whose arguments stand in tags, as text without types: <function=NAME><parameter=KEY>VALUE</parameter></function>.
#include <utility>

#include "parsers/call_stage.h"
#include "parsers/json_span.h"
#include "parsers/value_json.h"

namespace quire {
namespace {

class TagCalls final : public CallStage {
 public:
  TagCalls(const AnswerFormat& format, const AnswerOptions& options, PieceWriter& writer)
      : CallStage(writer, options.show_special), syntax_(format.tools->syntax) {
    const auto set = [&](State state, std::vector<std::string_view> texts) {
      marks_[static_cast<size_t>(state)] = make_marks(texts, format.tokens);
    };
    const std::string_view open = syntax_.opens.front(), close = syntax_.closes.front();
    set(State::kText, {open});
    set(State::kCall, {syntax_.function, open, close});
    set(State::kName, {syntax_.name_end, syntax_.key, syntax_.function_end, close});
    set(State::kArguments, {syntax_.key, syntax_.function_end, close});
    set(State::kKey, {syntax_.key_end, syntax_.value, close});
    set(State::kBeforeValue, {syntax_.value, close});
    set(State::kValue, {syntax_.value_end, syntax_.function_end, close});
    for (const Mark& mark : marks_[static_cast<size_t>(State::kValue)]) {
      if (mark.token) token_ends_.push_back(mark);
    }
  }

 protected:
  std::span<const Mark> marks() const override {
    if (state_ == State::kValue && json_.in_string()) return token_ends_;
    return marks_[static_cast<size_t>(state_)];
  }

  size_t plain(std::string_view run) override {
    switch (state_) {
      case State::kText:
        writer_.text(run);
        return run.size();
      case State::kName:
        name_ += run;
        if (!hold(run) || name_.size() > 2 * kMaxCallName) give_up();
        return run.size();
      case State::kKey:
        key_ += run;
        return run.size();
      case State::kValue:
        return value(run);
      default:
        between(run.front());
        return 1;
    }
  }

  void hit(const Mark& mark) override {
    const std::string_view text = mark.text;
    switch (state_) {
      case State::kText:
        open_call(text);
        break;
      case State::kCall:
        in_call(text);
        break;
      case State::kName:
        hold(text);
        if (!may_call(trimmed(name_), false)) return give_up();
        begin_arguments();
        if (text != syntax_.name_end) arguments(text);
        break;
      case State::kArguments:
        arguments(text);
        break;
      case State::kKey:
      case State::kBeforeValue:
        if (text == syntax_.value || (text == syntax_.key_end && syntax_.value.empty())) {
          begin_value();
        } else if (text == syntax_.key_end) {
          state_ = State::kBeforeValue;
        } else {
          end_call(text);  // a key without a value
        }
        break;
      case State::kValue:
        end_value();
        if (text != syntax_.value_end) arguments(text);
        break;
    }
  }

  void finish(bool complete) override {
    if (state_ == State::kValue && json_.in_string()) {  // never closed, so it is none: the marks in it count
      json_ = {};
      reads_json_ = false;
      text(std::exchange(value_, {}));
      return end(complete);
    }
    switch (state_) {
      case State::kName:
        release_held();
        break;
      case State::kCall:
        if (!had_call_) release_held();
        break;
      case State::kArguments:
        if (complete) end_call({});  // the model forgot to close it
        break;
      case State::kValue:
        if (complete) {
          end_value();
          end_call({});
        } else if (!streams_) {
          writer_.arguments(value_);  // cut off
        }
        break;
      default:
        break;
    }
  }

 private:
  enum class State { kText, kCall, kName, kArguments, kKey, kBeforeValue, kValue };

  void open_call(std::string_view mark) {
    had_call_ = false;
    name_.clear();
    hold(mark);
    state_ = syntax_.function.empty() ? State::kName : State::kCall;
  }

  void give_up() {
    release_held();
    state_ = State::kText;
  }

  // Between the opening mark and a function, or after one.
  void in_call(std::string_view text) {
    hold(text);
    if (text == syntax_.function) {
      state_ = State::kName;
      name_.clear();
    } else if (had_call_) {
      drop_held();
      state_ = State::kText;
      if (text == syntax_.opens.front()) open_call(text);
    } else {
      give_up();
    }
  }

  void between(char c) {
    const bool space = kSpace.find(c) != std::string_view::npos;
    if (state_ == State::kCall) {
      if (!hold({&c, 1}) || !space) give_up();
    } else if (!space) {
      end_call({});
      state_ = State::kText;
      writer_.text({&c, 1});
    }
  }

  void begin_arguments() {
    drop_held();
    writer_.begin_call(trimmed(name_));
    tool_ = writer_.tool(trimmed(name_));
    writer_.arguments("{");
    first_ = true;
    state_ = State::kArguments;
  }

  // A mark after the name or a value.
  void arguments(std::string_view text) {
    if (text == syntax_.key) {
      key_.clear();
      state_ = State::kKey;
    } else {
      end_call(text);
    }
  }

  void begin_value() {
    const std::string_view key = trimmed(key_);
    writer_.arguments((first_ ? "" : ", ") + json_quoted(key) + ": ");
    first_ = false;
    streams_ = is_string_argument(tool_, key);
    if (streams_) writer_.arguments("\"");
    value_.clear();
    began_value_ = false;
    json_ = {};
    state_ = State::kValue;
  }

  // Tags may stand on lines of their own: one line end on each side is not part of the value.
  size_t value(std::string_view run) {
    if (!streams_ && reads_json_) run = run.substr(0, until_string_changes(run));
    const size_t size = run.size();
    if (!began_value_) {
      began_value_ = true;
      if (run.front() == '\n') run.remove_prefix(1);
    }
    value_ += run;
    if (streams_ && !value_.empty()) {
      const bool line_end = value_.back() == '\n';
      if (line_end) value_.pop_back();
      writer_.arguments(json_escaped(value_));
      value_ = line_end ? "\n" : "";
    }
    return size;
  }

  // Bytes of the run up to where a string of a JSON value begins or ends: marks inside such a string are part of it.
  size_t until_string_changes(std::string_view run) {
    const size_t first = value_.find_first_not_of(kSpace);
    const char begin = first == std::string::npos ? run.front() : value_[first];
    if (kSpace.find(begin) != std::string_view::npos) return 1;
    if (std::string_view("{[\"").find(begin) == std::string_view::npos) return run.size();
    for (size_t i = 0; i < run.size(); ++i) {
      const bool in_string = json_.in_string();
      json_.step(run[i]);
      if (json_.in_string() != in_string) return i + 1;
    }
    return run.size();
  }

  void end_value() {
    if (!streams_) {
      if (value_.ends_with('\n')) value_.pop_back();
      writer_.arguments(untyped_value(value_));
    } else {
      writer_.arguments("\"");
    }
    state_ = State::kArguments;
  }

  void end_call(std::string_view mark) {
    writer_.arguments("}");
    writer_.end_call();
    had_call_ = true;
    drop_held();
    state_ = !mark.empty() && mark == syntax_.function_end ? State::kCall : State::kText;
  }

  const CallSyntax& syntax_;
  Marks marks_[7];  // of each state
  State state_ = State::kText;
  bool had_call_ = false;     // since the opening mark
  bool first_ = true;         // argument of the call
  bool streams_ = false;      // the value is a string and passed on as it comes
  bool began_value_ = false;  // a byte of it was seen
  const ToolSchema* tool_ = nullptr;
  JsonSpan json_;  // of a value that is not a string: where it has strings
  bool reads_json_ = true;
  Marks token_ends_;  // of a value, within a string
  std::string name_, key_, value_;
};

}  // namespace

std::unique_ptr<Stage> tag_calls(const AnswerFormat& format, const AnswerOptions& options, PieceWriter& writer) {
  return std::make_unique<TagCalls>(format, options, writer);
}

}  // namespace quire
