// From a model's answer to typed pieces: text, reasoning and tool calls, each as soon as it is certain.
//
//   AnswerFormat format = choose_format(template_source, is_token, "auto", "auto");
//   auto parser = make_answer_parser(format, {.tools = tools});
//   for (const Output& output : outputs) parser->add(output.text, pieces);
//   parser->end(true, pieces);
//
// However an answer is split into chunks, the joined pieces are the same. Time is linear in the answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "json/parse.h"
#include "parsers/families.h"

namespace quire {

inline constexpr int kMaxCalls = 128;          // in one answer; further calls stay text
inline constexpr size_t kMaxHeld = 256 << 10;  // bytes that may become a call; longer ones are text
inline constexpr size_t kMaxCallName = 256;    // bytes

struct AnswerPiece {
  enum Kind : uint8_t {
    kText,
    kReasoning,
    kCallBegin,      // text: the function's name
    kCallArguments,  // text: the next part of the arguments as JSON
    kCallEnd,        // absent if the answer ended inside the call
  };
  Kind kind = kText;
  int call = 0;  // number of the call: 0, 1, 2, …
  std::string text = {};
  bool operator==(const AnswerPiece&) const = default;
};

struct ToolSchema {
  std::string name;
  Json parameters = nullptr;  // a JSON Schema or null
};
using ToolList = std::vector<ToolSchema>;

class AnswerParser {
 public:
  virtual ~AnswerParser() = default;
  // Appends the pieces that `chunk` completes. Added tokens stand in frames (text/token_frames.h). Adjacent pieces of a
  // kind are joined within a call of add().
  virtual void add(std::string_view chunk, std::vector<AnswerPiece>& out) = 0;
  // `complete`: the model ended the answer; false: it was cut off, so an open call stays open. A beginning that did not
  // become a call is text.
  virtual void end(bool complete, std::vector<AnswerPiece>& out) = 0;
};

struct AnswerOptions {
  std::shared_ptr<const ToolList> tools = nullptr;  // null: calls stay text
  bool inside_thought = false;                      // the prompt ends inside a thought
  bool continues = false;                           // the prompt ends inside the answer's text
  bool show_special = false;                        // special tokens without a meaning here are part of the text
};

std::unique_ptr<AnswerParser> make_answer_parser(const AnswerFormat& format, AnswerOptions options);

}  // namespace quire
