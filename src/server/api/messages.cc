// Anthropic's /v1/messages: one block of text.
#include "server/api/answer_parts.h"

namespace quire {
namespace {

class MessageAnswer final : public Answer {
 public:
  explicit MessageAnswer(ResponseHead head) : head_(std::move(head)) {}

  void add(int, const Output& output, std::string& out) override {
    usage_.add(0, output);
    if (output.finish != FinishReason::kNone) {
      finish_ = output.finish;
      if (!output.stop_token) stop_sequence_ = output.stop_reason;
    }
    if (!head_.stream) {
      text_ += output.text;
      return;
    }
    if (!begun_) begin(out);
    if (output.text.empty()) return;
    append_typed_event(
        {{"type", "content_block_delta"}, {"index", 0}, {"delta", {{"type", "text_delta"}, {"text", output.text}}}},
        out);
  }

  void end(std::string& out) override {
    if (!head_.stream) {
      out += dump(message(Json::array({block(text_)}), stop_reason(), stop_sequence()));
      return;
    }
    append_typed_event({{"type", "content_block_stop"}, {"index", 0}}, out);
    append_typed_event({{"type", "message_delta"},
                        {"delta", {{"stop_reason", stop_reason()}, {"stop_sequence", stop_sequence()}}},
                        {"usage", usage()}},
                       out);
    append_typed_event({{"type", "message_stop"}}, out);
  }

  void fail(const ApiError& error, std::string& out) override {
    out += "event: error\ndata: " + error_body(error, ErrorShape::kAnthropic) + "\n\n";
  }

 private:
  void begin(std::string& out) {
    begun_ = true;
    append_typed_event({{"type", "message_start"}, {"message", message(Json::array(), nullptr, nullptr)}}, out);
    append_typed_event({{"type", "content_block_start"}, {"index", 0}, {"content_block", block("")}}, out);
    append_typed_event({{"type", "ping"}}, out);
  }

  static Json block(std::string_view text) { return {{"type", "text"}, {"text", text}}; }

  Json stop_reason() const {
    if (finish_ == FinishReason::kLength) return "max_tokens";
    return stop_sequence_.empty() ? "end_turn" : "stop_sequence";
  }
  Json stop_sequence() const { return stop_sequence_.empty() ? Json() : Json(stop_sequence_); }

  Json message(Json content, Json reason, Json sequence) const {
    return {{"id", head_.id},
            {"type", "message"},
            {"role", "assistant"},
            {"model", head_.model},
            {"content", std::move(content)},
            {"stop_reason", std::move(reason)},
            {"stop_sequence", std::move(sequence)},
            {"usage", usage()}};
  }

  // input_tokens are those that were not read from the cache.
  Json usage() const {
    const int cached = usage_.cached_tokens(1);
    return {{"input_tokens", head_.prompt_tokens - cached},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", cached},
            {"output_tokens", usage_.completion_tokens()}};
  }

  ResponseHead head_;
  std::string text_, stop_sequence_;
  UsageSum usage_{1};
  FinishReason finish_ = FinishReason::kNone;
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<Answer> message_answer(ResponseHead head) { return std::make_unique<MessageAnswer>(std::move(head)); }

}  // namespace quire
