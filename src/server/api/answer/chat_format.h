// How the loaded model takes tools, and how its answers are to be read. Found once, when the model is loaded.
#pragma once

#include <memory>
#include <string>

#include "parsers/answer_constraint.h"
#include "parsers/tool_prompt.h"
#include "server/api/answer/answer_reader.h"
#include "server/api/completer.h"
#include "server/api/request/request.h"

namespace quire {

class ChatFormat {
 public:
  // Names as for choose_format(). Throws Error for unknown ones.
  ChatFormat(const ServedText& text, const std::string& tool_parser, const std::string& reasoning_parser);

  // Brings request.chat into the form that the model's template takes. Throws ApiError, a 400 that names the part, if
  // the prompt would lack a part of it.
  void prepare(ApiRequest& request) const;
  // How to read the answers to a prepared chat; `prompt` is its tokens. Null: as text.
  std::shared_ptr<const AnswerReading> reading(const ApiRequest& request, const TokenIds& prompt) const;
  // What the answers to such a chat must match: calls that are forced, strict arguments, or the request's own constraint,
  // after thoughts. Throws Error for what the model's syntax of calls cannot express.
  std::optional<ConstraintSource> constraint(const ApiRequest& request, const AnswerReading* reading) const;
  // The arguments of calls of one of the request's tools, as constraint() has them if such a call is forced.
  ConstraintSource arguments(const Json& tool, const ToolRule& rule) const;
  // Of request.max_reasoning_tokens. Nothing: it has none, or the model's thoughts are not known.
  std::optional<ThoughtBudget> thought_budget(const ApiRequest& request, const AnswerReading* reading) const;

  const AnswerFormat& format() const { return format_; }
  bool describes_tools() const { return form_.place == ToolPlace::kSystemText || form_.place == ToolPlace::kUserText; }

 private:
  void require_shown(const ApiRequest& request) const;

  const ServedText& text_;
  ToolForm form_{.place = ToolPlace::kVariable};
  AnswerFormat format_;
};

}  // namespace quire
