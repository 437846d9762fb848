// Calls whose arguments are JSON, in an object with the name or after it.
#include <algorithm>
#include <utility>

#include "parsers/call_stage.h"
#include "parsers/json_mender.h"
#include "parsers/json_span.h"

namespace quire {
namespace {

// Kimi's "functions.weather:0" is a call of weather.
std::string_view function_name(std::string_view name) {
  name = trimmed(name);
  if (name.starts_with("functions.")) name.remove_prefix(10);
  const size_t colon = name.rfind(':');
  if (colon != std::string_view::npos && colon + 1 < name.size() &&
      name.find_first_not_of("0123456789", colon + 1) == std::string_view::npos) {
    name = name.substr(0, colon);
  }
  return name;
}

class JsonCalls final : public CallStage {
 public:
  JsonCalls(const AnswerFormat& format, const AnswerOptions& options, PieceWriter& writer)
      : CallStage(writer, options.show_special),
        syntax_(format.tools->syntax),
        opens_(make_marks(syntax_.opens, format.tokens)),
        closes_(make_marks(syntax_.closes, format.tokens)),
        both_(opens_),
        naming_(make_marks(syntax_.name_ends, format.tokens)) {
    both_.insert(both_.end(), closes_.begin(), closes_.end());
    naming_.insert(naming_.end(), closes_.begin(), closes_.end());
    for (const Mark& mark : closes_) {
      if (mark.token) token_closes_.push_back(mark);
    }
    if (syntax_.bare && !options.continues) state_ = State::kStart;
  }

 protected:
  std::span<const Mark> marks() const override {
    switch (state_) {
      case State::kText:
        return opens_;
      case State::kStart:
      case State::kCall:
      case State::kAfter:
        return both_;
      case State::kName:
      case State::kId:
        return naming_;
      case State::kKey:
        return committed_ ? both_ : closes_;
      case State::kArguments:  // inside a string only a token can be a mark
        return mender_.in_string() ? token_closes_ : closes_;
      default:
        return span_.in_string() ? token_closes_ : closes_;
    }
  }

  size_t plain(std::string_view run) override {
    if (state_ == State::kText) {
      writer_.text(run);
      return run.size();
    }
    if (state_ == State::kArguments) return more_arguments(run);
    step(run.front());
    return 1;
  }

  void hit(const Mark& mark) override {
    if (is_one_of(mark, closes_)) return close(mark);
    if (is_one_of(mark, opens_)) {
      if (state_ == State::kStart) release_held();
      if (committed_) end_call();  // its object was not closed
      known_ = mark.text.starts_with("```");
      begin(mark.text);
      return;
    }
    // The end of a name.
    hold(mark.text);
    if (state_ == State::kName && trimmed(name_) == "function") {
      name_.clear();  // DeepSeek V3 writes the call's type first, and ends the name's line
      ends_with_line_ = true;
    } else {
      state_ = mark.text == "[CALL_ID]" ? State::kId : State::kBeforeArguments;
    }
  }

  void finish(bool complete) override {
    if (committed_ && state_ == State::kArguments && !complete) {
      std::string rest;
      mender_.cut(rest);
      writer_.arguments(rest);
    } else if (committed_) {
      end_call();  // its object stays open
    } else {
      release_held();
    }
  }

 private:
  enum class State {
    kText,
    kStart,            // start of the answer, where a call may stand without a mark
    kCall,             // before a call
    kName,             // NAME, before the arguments
    kId,               // Mistral's
    kBeforeArguments,  // after the name
    kKey,              // in an object: before a key
    kColon,            // … within or after a key
    kValue,            // … within a value
    kArguments,        // passed on as they come
    kAfter,            // a call
  };

  static bool is_one_of(const Mark& mark, const Marks& marks) {
    return std::ranges::any_of(marks, [&](const Mark& m) { return m.text == mark.text; });
  }
  static bool is_space(char c) { return kSpace.find(c) != std::string_view::npos; }

  void begin(std::string_view mark) {
    hold(mark);
    state_ = State::kCall;
    list_ = closed_ = false;
  }

  void give_up() {
    if (committed_) writer_.end_call();
    committed_ = false;
    release_held();
    state_ = State::kText;
  }

  void end_call() {
    drop_held();
    if (state_ == State::kArguments) {
      std::string rest;
      mender_.close(rest);
      writer_.arguments(rest);
    }
    writer_.end_call();
    committed_ = false;
    state_ = State::kAfter;
  }

  void close(const Mark& mark) {
    if (state_ == State::kStart) return writer_.text(mark.text);
    if (state_ == State::kName || state_ == State::kBeforeArguments) {
      if (commit(function_name(name_))) writer_.arguments("{}");
    }
    if (committed_) end_call();  // perhaps too early
    if (state_ == State::kAfter) {
      closed_ = true;
    } else {
      hold(mark.text);
      give_up();
    }
  }

  bool commit(std::string_view name) {
    if (!may_call(name, known_)) return false;
    drop_held();
    writer_.begin_call(name);
    return committed_ = true;
  }

  void step(char c) {
    if (state_ == State::kAfter) return after(c);
    if (state_ == State::kStart) {
      if (is_space(c)) {
        hold({&c, 1});
        return;
      }
      if (c != '{' && c != '[') {
        hold({&c, 1});
        return give_up();
      }
      known_ = true;
      begin({});
    }
    if (state_ == State::kValue) return value(c);
    if (!hold({&c, 1})) return give_up();
    switch (state_) {
      case State::kCall:
        before_call(c);
        break;
      case State::kName:
        if (ends_with_line_ && c == '\n' && !trimmed(name_).empty()) {
          state_ = State::kBeforeArguments;
        } else if (c == '{') {  // Mistral's models leave out [ARGS]
          before_arguments(c);
        } else {
          name_ += c;
          if (name_.size() > kMaxCallName) give_up();
        }
        break;
      case State::kBeforeArguments:
        before_arguments(c);
        break;
      case State::kId:
        break;  // ours are unique
      case State::kKey:
        before_key(c);
        break;
      case State::kColon:
        key(c);
        break;
      default:
        break;
    }
  }

  void before_call(char c) {
    if (is_space(c)) return;
    if (c == '{') {
      state_ = State::kKey;
      name_.clear();
      held_arguments_.clear();
      has_arguments_ = false;
    } else if (c == '[' && !list_) {
      list_ = true;
    } else if (c == ']' && list_) {
      drop_held();
      list_ = false;
      state_ = State::kAfter;
    } else if (!syntax_.name_ends.empty() && !list_) {
      state_ = State::kName;
      name_ = c;
      ends_with_line_ = false;
    } else {
      give_up();
    }
  }

  void before_arguments(char c) {
    if (c == '{') {
      if (!commit(function_name(name_))) return give_up();
      in_object_ = false;
      begin_arguments(c);
    } else if (!is_space(c) && std::string_view("`json").find(c) == std::string_view::npos) {  // DeepSeek V3's fence
      give_up();
    }
  }

  void before_key(char c) {
    if (c == '"') {
      key_ = c;
      span_ = {};
      span_.step(c);
      state_ = State::kColon;
    } else if (c == '}') {
      end_object();
    } else if (!is_space(c) && c != ',') {
      give_up();
    }
  }

  void key(char c) {
    if (span_.in_string()) {
      key_ += c;
      span_.step(c);
      return;
    }
    if (is_space(c)) return;
    if (c != ':') return give_up();
    key_ = mended_string(key_).value_or("");
    value_.clear();
    span_ = {};
    state_ = State::kValue;
  }

  bool is_arguments() const {
    return syntax_.name_is_key ? name_.empty() && !has_arguments_ : key_ == "arguments" || key_ == "parameters";
  }

  void value(char c) {
    if (value_.empty()) {
      if (is_space(c)) {
        if (!hold({&c, 1})) give_up();
        return;
      }
      const std::string_view name = syntax_.name_is_key ? std::string_view(key_) : std::string_view(name_);
      if (c == '{' && is_arguments() && !committed_ && commit(name)) {
        in_object_ = true;
        return begin_arguments(c);
      }
    }
    const JsonSpan::Step step = span_.step(c);
    if (step != JsonSpan::Step::kAfter) {
      value_ += c;
      if (!hold({&c, 1})) return give_up();
    }
    if (step == JsonSpan::Step::kInside) return;
    end_value();
    if (step == JsonSpan::Step::kAfter) plain_all({&c, 1});
  }

  void end_value() {
    state_ = State::kKey;
    if (committed_) return;
    if (key_ == "name" && !syntax_.name_is_key) {
      name_ = mended_string(value_).value_or("");
    } else if (is_arguments()) {
      // Before the name, or encoded once more as a string.
      const auto text = value_.starts_with('"') ? mended_string(value_) : value_;
      const auto object = text ? mended_object(*text) : std::nullopt;
      if (!object) return give_up();
      held_arguments_ = *object;
      has_arguments_ = true;
      if (syntax_.name_is_key) name_ = key_;
    }
    if (name_.empty() || !has_arguments_) return;
    if (!commit(name_)) return give_up();
    writer_.arguments(held_arguments_);
  }

  void end_object() {
    if (!committed_) {
      if (known_ || !commit(name_)) return give_up();  // without a mark, arguments are what makes it a call
      writer_.arguments("{}");
    }
    end_call();
  }

  void begin_arguments(char c) {
    mender_ = {};
    state_ = State::kArguments;
    more_arguments({&c, 1});
  }

  size_t more_arguments(std::string_view run) {
    std::string mended;
    const size_t size = mender_.add(run, mended);
    writer_.arguments(mended);
    if (mender_.ended()) {
      state_ = State::kKey;
      if (!in_object_) end_call();
    }
    return size;
  }

  void after(char c) {
    // Or a bracket too many, as models write it.
    const bool rest_of_fence = !closed_ && !closes_.empty() && (c == '}' || c == ']' || c == '`');
    if (is_space(c)) {
      if (!list_) writer_.text({&c, 1});  // which the next call drops
    } else if (list_ && c == ',') {
      state_ = State::kCall;
    } else if (list_ && c == ']') {
      list_ = false;
    } else if (rest_of_fence || (syntax_.bare && !list_ && c == ';')) {
      return;
    } else if (c == '{' && !list_ && (!closed_ || syntax_.bare)) {
      state_ = State::kCall;
      step(c);
    } else {
      list_ = false;
      writer_.text({&c, 1});
      state_ = State::kText;
    }
  }

  const CallSyntax& syntax_;
  Marks opens_, closes_, both_, naming_, token_closes_;
  State state_ = State::kText;
  bool list_ = false;            // inside a list of calls
  bool closed_ = false;          // kAfter: the closing mark was seen
  bool known_ = false;           // only calls of existing tools count
  bool ends_with_line_ = false;  // kName
  bool in_object_ = false;       // kArguments: in an object that goes on
  bool committed_ = false;       // the call has begun and not ended
  bool has_arguments_ = false;   // the object has a key for arguments
  JsonSpan span_;                // the text of a key or value
  JsonMender mender_;
  std::string name_, key_, value_, held_arguments_;
};

}  // namespace

std::unique_ptr<Stage> json_calls(const AnswerFormat& format, const AnswerOptions& options, PieceWriter& writer) {
  return std::make_unique<JsonCalls>(format, options, writer);
}

}  // namespace quire
