// What the parsers of calls have in common: text before, between and after calls, and what did not become one.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "parsers/piece_writer.h"
#include "parsers/stage.h"

namespace quire {

class CallStage : public MarkedStage {
 protected:
  CallStage(PieceWriter& writer, bool show_special) : writer_(writer), show_special_(show_special) {}

  // A token that means nothing to the calls is text, or left out.
  void other(const AnswerToken& token) override {
    if (token.shown || show_special_) plain_all(token.text);
  }

  // The bytes since the beginning of a possible call, with its marks. Text if it does not become one.
  bool hold(std::string_view bytes) {
    held_call_ += bytes;
    return held_call_.size() <= kMaxHeld;
  }
  void drop_held() { held_call_.clear(); }
  void release_held() { writer_.text(std::exchange(held_call_, {})); }
  std::string_view held() const { return held_call_; }

  // Whether a call of this name may begin: an answer has at most kMaxCalls, of existing tools if `known`.
  bool may_call(std::string_view name, bool known) const {
    return !name.empty() && name.size() <= kMaxCallName && writer_.may_begin_call() && (!known || writer_.tool(name));
  }

  PieceWriter& writer_;

 private:
  const bool show_special_;
  std::string held_call_;
};

inline std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// The stage for the format's calls, one of the following.
std::unique_ptr<Stage> call_stage(const AnswerFormat& format, const AnswerOptions& options, PieceWriter& writer);
std::unique_ptr<Stage> json_calls(const AnswerFormat& format, const AnswerOptions& options, PieceWriter& writer);
std::unique_ptr<Stage> tag_calls(const AnswerFormat& format, const AnswerOptions& options, PieceWriter& writer);
std::unique_ptr<Stage> python_calls(const AnswerFormat& format, const AnswerOptions& options, PieceWriter& writer);
std::unique_ptr<Stage> gemma_calls(const AnswerFormat& format, const AnswerOptions& options, PieceWriter& writer);
// Also reads reasoning, and calls only if there are tools.
std::unique_ptr<Stage> harmony(const AnswerFormat& format, const AnswerOptions& options, PieceWriter& writer);
// Text without calls.
std::unique_ptr<Stage> plain_text(const AnswerOptions& options, PieceWriter& writer);

}  // namespace quire
