// links: parsers
// Any answer, in every family: its pieces are in order, and the same byte by byte as at once. The first byte chooses the
// families.
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parsers/answer_parser.h"

namespace {

using namespace quire;

std::string joined(const AnswerFormat& format, const AnswerOptions& options, std::string_view answer, size_t chunk) {
  const auto parser = make_answer_parser(format, options);
  std::vector<AnswerPiece> pieces;
  for (size_t at = 0; at < answer.size(); at += chunk) parser->add(answer.substr(at, chunk), pieces);
  parser->end(true, pieces);
  std::string text, reasoning, calls;
  int call = -1;
  bool open = false;
  for (const AnswerPiece& piece : pieces) {
    switch (piece.kind) {
      case AnswerPiece::kText:
        text += piece.text;
        break;
      case AnswerPiece::kReasoning:
        reasoning += piece.text;
        break;
      case AnswerPiece::kCallBegin:
        assert(piece.call == ++call && call < kMaxCalls && !piece.text.empty());
        open = true;
        calls += "\n" + piece.text + "\n";
        break;
      case AnswerPiece::kCallArguments:
      case AnswerPiece::kCallEnd:
        assert(open && piece.call == call);
        calls += piece.text;
        open = piece.kind == AnswerPiece::kCallArguments;
        if (!open) calls += "\nend";
        break;
    }
  }
  return text + '\0' + reasoning + '\0' + calls;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto kTools = std::make_shared<const ToolList>(
      ToolList{{"time", nullptr}, {"note", Json::parse(R"({"properties": {"text": {"type": "string"}}})")}});
  if (size == 0) return 0;
  const auto tools = tool_families();
  const auto thoughts = reasoning_families();
  const ToolFamily& family = tools[data[0] % tools.size()];
  const size_t thought = data[0] / tools.size();
  const std::string_view answer(reinterpret_cast<const char*>(data) + 1, size - 1);
  for (const bool tokens : {false, true}) {
    const AnswerFormat format = choose_format(
        "", [&](std::string_view) { return tokens; }, family.name,
        thought < thoughts.size() ? thoughts[thought].name : "none");
    const AnswerOptions options{.tools = kTools, .inside_thought = size % 2 == 0};
    const std::string whole = joined(format, options, answer, size);
    const std::string bytes = joined(format, options, answer, 1);
    if (whole != bytes) __builtin_trap();
  }
  return 0;
}
