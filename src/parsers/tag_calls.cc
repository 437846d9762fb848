// Calls whose arguments stand in tags, as text without types: <function=NAME><parameter=KEY>VALUE</parameter></function>.
#include <algorithm>
#include <utility>

#include "parsers/argument_schema.h"
#include "parsers/call_stage.h"
#include "parsers/json_span.h"
#include "parsers/value_json.h"

namespace quire {
namespace {

class TagCalls final : public CallStage {
 public:
  TagCalls(const AnswerFormat& format, const AnswerOptions& options, PieceWriter& writer)
      : CallStage(writer, options.show_special), syntax_(format.tools->syntax) {
    const auto set = [&](State state, std::vector<std::string_view> texts, bool closes = true) {
      if (closes) texts.insert(texts.end(), syntax_.closes.begin(), syntax_.closes.end());
      marks_[static_cast<size_t>(state)] = make_marks(texts, format.tokens);
    };
    set(State::kText, syntax_.opens, false);
    std::vector<std::string_view> in_call = syntax_.opens;
    in_call.insert(in_call.end(), syntax_.name_ends.begin(), syntax_.name_ends.end());
    in_call.push_back(syntax_.function);
    set(State::kCall, in_call);
    set(State::kName, {syntax_.name_end, syntax_.key, syntax_.function_end});
    set(State::kArguments, {syntax_.key, syntax_.function_end});
    set(State::kKey, {syntax_.key_end, syntax_.value});
    set(State::kBeforeValue, {syntax_.value});
    set(State::kValue, {syntax_.value_end, syntax_.function_end});
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
      case State::kText:
        break;
      default:
        if (complete) {  // the model forgot to close it
          if (state_ == State::kValue) end_value();
          end_call({});
        } else if (state_ == State::kValue && as_ != Value::kText) {
          writer_.arguments(value_);  // cut off
        }
    }
  }

 private:
  enum class State { kText, kCall, kName, kArguments, kKey, kBeforeValue, kValue };
  // A value as a string, as it comes; likewise unless it turns out to be null; as JSON, or a string if it is none.
  enum class Value { kText, kTextOrNull, kJson };

  static bool is_one_of(std::string_view text, const std::vector<std::string_view>& marks) {
    return std::ranges::find(marks, text) != marks.end();
  }

  void open_call(std::string_view mark) {
    had_call_ = false;
    announced_ = false;
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
    if (is_one_of(text, syntax_.opens) && (had_call_ || syntax_.opens.size() > 1)) {
      if (had_call_) drop_held();
      return open_call(text);
    }
    hold(text);
    if (text == syntax_.function) {
      state_ = State::kName;
      name_.clear();
    } else if (is_one_of(text, syntax_.name_ends) && !announced_) {
      announced_ = true;
    } else if (had_call_) {
      drop_held();
      if (text == syntax_.closes.back()) state_ = State::kText;
    } else {
      give_up();
    }
  }

  void between(char c) {
    const bool space = kSpace.find(c) != std::string_view::npos;
    if (state_ == State::kCall) {
      // Before the name, Step 3 writes the kind of the call.
      const bool kind = !syntax_.name_ends.empty() && !had_call_ && !announced_ && c >= 'a' && c <= 'z';
      if (!hold({&c, 1}) || !(space || kind)) give_up();
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
    std::string_view key = trimmed(key_);
    const bool text = !syntax_.text_key.empty() && key.ends_with(syntax_.text_key);
    const bool json = !syntax_.json_key.empty() && key.ends_with(syntax_.json_key);
    key.remove_suffix(text ? syntax_.text_key.size() : json ? syntax_.json_key.size() : 0);
    const Json* schema = tool_ ? argument_schema(tool_->parameters, key) : nullptr;
    types_ = schema ? value_types(tool_->parameters, *schema) : ValueTypes{};
    as_ = text || (types_.is_text() && !types_.has(ValueTypes::kNull)) ? Value::kText
          : types_.is_text()                                           ? Value::kTextOrNull
                                                                       : Value::kJson;
    writer_.arguments((first_ ? "" : ", ") + json_quoted(key) + ": ");
    first_ = false;
    if (as_ == Value::kText) writer_.arguments("\"");
    value_.clear();
    trims_ = !text && !json;
    began_value_ = !trims_;
    json_ = {};
    state_ = State::kValue;
  }

  // Whether the value so far may become null, as JSON or Python has it.
  bool may_be_null() const {
    const std::string_view value = value_;
    for (const std::string_view word : {"null", "None"}) {
      if (word.starts_with(value) || (value.starts_with(word) && value.substr(word.size()) == "\n")) return true;
    }
    return false;
  }

  // Tags may stand on lines of their own: one line end on each side is not part of the value.
  size_t value(std::string_view run) {
    if (as_ == Value::kJson && reads_json_) run = run.substr(0, until_string_changes(run));
    const size_t size = run.size();
    if (!began_value_) {
      began_value_ = true;
      if (run.front() == '\n') run.remove_prefix(1);
    }
    value_ += run;
    if (as_ == Value::kTextOrNull && !may_be_null()) {
      as_ = Value::kText;
      writer_.arguments("\"");
    }
    if (as_ == Value::kText && !value_.empty()) {
      const bool line_end = trims_ && value_.back() == '\n';
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
    if (trims_ && value_.ends_with('\n')) value_.pop_back();
    if (as_ == Value::kText) {
      writer_.arguments("\"");
    } else if (as_ == Value::kJson) {
      writer_.arguments(untyped_value(value_, types_));
    } else {
      writer_.arguments(value_ == "null" || value_ == "None" ? "null" : json_quoted(value_));
    }
    state_ = State::kArguments;
  }

  void end_call(std::string_view mark) {
    writer_.arguments("}");
    writer_.end_call();
    had_call_ = true;
    drop_held();
    const bool inner =
        mark == syntax_.function_end || (is_one_of(mark, syntax_.closes) && mark != syntax_.closes.back());
    state_ = !mark.empty() && inner ? State::kCall : State::kText;
  }

  const CallSyntax& syntax_;
  Marks marks_[7];  // the marks that each state looks for
  State state_ = State::kText;
  bool had_call_ = false;     // since the opening mark
  bool announced_ = false;    // the mark after the kind of the call was seen
  bool first_ = true;         // argument of the call
  bool trims_ = true;         // a line end on each side is not part of the value
  bool began_value_ = false;  // a byte of it was seen
  Value as_ = Value::kJson;
  ValueTypes types_;
  const ToolSchema* tool_ = nullptr;
  JsonSpan json_;  // where a value that is not a string has strings
  bool reads_json_ = true;
  Marks token_ends_;  // ends of a value that may stand within a string
  std::string name_, key_, value_;
};

}  // namespace

std::unique_ptr<Stage> tag_calls(const AnswerFormat& format, const AnswerOptions& options, PieceWriter& writer) {
  return std::make_unique<TagCalls>(format, options, writer);
}

}  // namespace quire
