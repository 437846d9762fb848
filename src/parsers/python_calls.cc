// Calls written as Python: [weather(city="Oslo", days=3), time()]
#include <cctype>
#include <utility>

#include "parsers/call_stage.h"
#include "parsers/value_json.h"

namespace quire {
namespace {

class PythonCalls final : public CallStage {
 public:
  PythonCalls(const AnswerFormat& format, const AnswerOptions& options, PieceWriter& writer)
      : CallStage(writer, options.show_special),
        opens_(make_marks(format.tools->syntax.opens, format.tokens)),
        closes_(make_marks(format.tools->syntax.closes, format.tokens)),
        both_(opens_) {
    both_.insert(both_.end(), closes_.begin(), closes_.end());
    for (const Mark& mark : closes_) {
      if (mark.token) token_closes_.push_back(mark);
    }
    if (format.tools->syntax.bare && !options.continues) state_ = State::kStart;
  }

 protected:
  std::span<const Mark> marks() const override {
    switch (state_) {
      case State::kText:
      case State::kStart:
        return opens_;
      case State::kAfter:
        return both_;
      default:
        return quote_ ? token_closes_ : closes_;
    }
  }

  size_t plain(std::string_view run) override {
    if (state_ == State::kText) {
      writer_.text(run);
      return run.size();
    }
    step(run.front());
    return 1;
  }

  void hit(const Mark& mark) override {
    const bool opens = std::ranges::any_of(opens_, [&](const Mark& m) { return m.text == mark.text; });
    if (opens) {
      if (state_ == State::kStart) release_held();
      bare_ = false;
      hold(mark.text);
      state_ = State::kCall;
      list_ = false;
    } else if (state_ == State::kAfter) {
      closed_ = true;
    } else if (in_call()) {  // which ends too early
      end_argument();
      end_call();
      state_ = State::kAfter;
      closed_ = true;
    } else {
      hold(mark.text);
      give_up();
    }
  }

  void finish(bool complete) override {
    if (in_call() && complete) {  // the model forgot to close it
      if (escape_) value_.pop_back();
      if (quote_) value_ += quote_;
      end_argument();
      end_call();
    } else if (state_ == State::kValue) {
      writer_.arguments(value_);  // cut off
    } else if (!in_call()) {
      release_held();
    }
  }

 private:
  enum class State { kText, kStart, kCall, kName, kKey, kValue, kAfterValue, kAfter };

  static bool is_space(char c) { return kSpace.find(c) != std::string_view::npos; }
  static bool is_name(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
  }
  bool in_call() const { return state_ == State::kKey || state_ == State::kValue || state_ == State::kAfterValue; }

  void give_up() {
    release_held();
    state_ = State::kText;
  }

  void step(char c) {
    if (state_ == State::kAfter) return after(c);
    if (state_ == State::kValue) return value(c);
    if (in_call()) return before_value(c);
    if (!hold({&c, 1})) return give_up();
    if (is_space(c) && state_ != State::kName) return;
    if (state_ == State::kStart) {
      if (c != '[') return give_up();
      bare_ = list_ = true;
      state_ = State::kCall;
    } else if (state_ == State::kCall) {
      name_.clear();
      if (c == '[' && !list_) {
        list_ = true;
      } else if (c == ']' && list_ && !bare_) {
        drop_held();
        list_ = false;
        state_ = State::kAfter;
      } else if (is_name(c)) {
        name_ = c;
        state_ = State::kName;
      } else {
        give_up();
      }
    } else if (c == '(') {
      if (!may_call(name_, bare_)) return give_up();
      drop_held();
      writer_.begin_call(name_);
      writer_.arguments("{");
      arguments_ = 0;
      key_.clear();
      state_ = State::kKey;
    } else if (is_name(c)) {
      name_ += c;
    } else {
      give_up();
    }
  }

  // In a call, outside values.
  void before_value(char c) {
    const bool key = state_ == State::kKey;
    if (key && trimmed(key_).empty() && std::string_view("'\"[{(").find(c) != std::string_view::npos) {
      begin_value(next_name());  // an argument without a name
      value(c);
    } else if (key && (c == ')' || c == ',') && !trimmed(key_).empty()) {
      const std::string argument = key_;
      begin_value(next_name());
      value_ = argument;
      end_argument();
      before_value(c);
    } else if (c == ')') {
      end_call();
    } else if (c == '=' && key) {
      begin_value(trimmed(key_));
    } else if (state_ == State::kAfterValue || c == ',') {
      key_.clear();
      state_ = State::kKey;
    } else {
      key_ += c;
    }
  }

  void begin_value(std::string_view name) {
    writer_.arguments((arguments_ == 0 ? "" : ", ") + json_quoted(name) + ": ");
    ++arguments_;
    value_.clear();
    depth_ = 0;
    state_ = State::kValue;
  }

  // Of the next argument, by its position in the tool's schema.
  std::string next_name() const {
    const ToolSchema* tool = writer_.tool(name_);
    if (tool && tool->parameters.is_object()) {
      const auto properties = tool->parameters.find("properties");
      if (properties != tool->parameters.end() && properties->is_object() && arguments_ < properties->size()) {
        return std::next(properties->begin(), static_cast<ptrdiff_t>(arguments_)).key();
      }
    }
    return "arg" + std::to_string(arguments_);
  }

  void value(char c) {
    if (quote_) {
      value_ += c;
      if (escape_) {
        escape_ = false;
      } else if (c == '\\') {
        escape_ = true;
      } else if (c == quote_) {
        quote_ = 0;
      }
      return;
    }
    if (depth_ == 0 && (c == ',' || c == ')')) {
      end_argument();
      return before_value(c);
    }
    if (c == '\'' || c == '"') quote_ = c;
    if (c == '[' || c == '{' || c == '(') ++depth_;
    if (c == ']' || c == '}' || c == ')') --depth_;
    value_ += c;
  }

  void end_argument() {
    if (state_ != State::kValue) return;
    writer_.arguments(python_value(value_).value_or(json_quoted(trimmed(value_))));
    quote_ = 0;
    escape_ = false;
    state_ = State::kAfterValue;
  }

  void end_call() {
    writer_.arguments("}");
    writer_.end_call();
    state_ = State::kAfter;
    closed_ = false;
  }

  void after(char c) {
    if (is_space(c)) {
      if (!list_) writer_.text({&c, 1});
    } else if (c == ',' && list_) {
      state_ = State::kCall;
    } else if (c == ']' && list_) {
      list_ = false;
    } else {
      writer_.text({&c, 1});
      state_ = State::kText;
    }
  }

  Marks opens_, closes_, both_, token_closes_;
  State state_ = State::kText;
  bool bare_ = false, list_ = false, closed_ = false, escape_ = false;
  char quote_ = 0;  // the quote around the string inside the value
  int64_t depth_ = 0;
  size_t arguments_ = 0;  // arguments of the call that have begun
  std::string name_, key_, value_;
};

}  // namespace

std::unique_ptr<Stage> python_calls(const AnswerFormat& format, const AnswerOptions& options, PieceWriter& writer) {
  return std::make_unique<PythonCalls>(format, options, writer);
}

}  // namespace quire
