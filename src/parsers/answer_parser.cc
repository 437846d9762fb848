#include "parsers/answer_parser.h"

#include <utility>

#include "parsers/call_stage.h"
#include "parsers/reasoning.h"
#include "text/token_frames.h"

namespace quire {
namespace {

class Parser final : public AnswerParser {
 public:
  Parser(AnswerFormat format, AnswerOptions options)
      : format_(std::move(format)), options_(std::move(options)), writer_(options_.tools) {
    const bool harmonic = format_.reasoning && format_.reasoning->harmony;
    if (harmonic || (options_.tools && format_.tools)) {
      calls_ = harmonic ? harmony(format_, options_, writer_) : call_stage(format_, options_, writer_);
    } else {
      calls_ = plain_text(options_, writer_);
    }
    if (format_.reasoning && !harmonic) reasoning_ = reasoning_stage(format_, options_, writer_, *calls_);
  }

  void add(std::string_view chunk, std::vector<AnswerPiece>& out) override {
    writer_.write_to(out);
    while (!chunk.empty()) {
      if (framed_) {
        const size_t end = chunk.find(kFrameEnd);
        token_ += chunk.substr(0, end);
        if (end == std::string_view::npos) return;
        chunk.remove_prefix(end + 1);
        leave_frame();
        continue;
      }
      constexpr char kFrames[] = {kSpecialFrame, kShownFrame};
      const size_t text = std::min(chunk.find_first_of({kFrames, 2}), chunk.size());
      if (text > 0) first().text(chunk.substr(0, text));
      chunk.remove_prefix(text);
      if (chunk.empty()) return;
      framed_ = true;
      shown_ = chunk.front() == kShownFrame;
      chunk.remove_prefix(1);
    }
  }

  void end(bool complete, std::vector<AnswerPiece>& out) override {
    writer_.write_to(out);
    if (framed_) {  // a stop string ended the answer inside it
      framed_ = false;
      if (shown_ || options_.show_special) first().text(token_);
    }
    first().end(complete);
    writer_.end();
  }

 private:
  Stage& first() { return reasoning_ ? *reasoning_ : *calls_; }

  void leave_frame() {
    framed_ = false;
    if (options_.tools && format_.tools && token_ == format_.tools->syntax.word) {
      first().text(token_);
    } else {
      first().token({.text = token_, .shown = shown_});
    }
    token_.clear();
  }

  const AnswerFormat format_;
  const AnswerOptions options_;
  PieceWriter writer_;
  std::unique_ptr<Stage> calls_, reasoning_;
  bool framed_ = false, shown_ = false;
  std::string token_;  // in the open frame
};

}  // namespace

std::unique_ptr<Stage> call_stage(const AnswerFormat& format, const AnswerOptions& options, PieceWriter& writer) {
  switch (format.tools->syntax.shape) {
    case CallShape::kJson:
      return json_calls(format, options, writer);
    case CallShape::kTags:
      return tag_calls(format, options, writer);
    case CallShape::kPython:
      return python_calls(format, options, writer);
    case CallShape::kGemma:
      return gemma_calls(format, options, writer);
    case CallShape::kHarmony:
      break;
  }
  return harmony(format, options, writer);
}

std::unique_ptr<AnswerParser> make_answer_parser(const AnswerFormat& format, AnswerOptions options) {
  return std::make_unique<Parser>(format, std::move(options));
}

}  // namespace quire
