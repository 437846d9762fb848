#include "server/endpoints/messages.h"

#include "server/api/error.h"
#include "server/api/prompts.h"
#include "server/api/structured_output.h"

namespace quire {
namespace {

constexpr std::string_view kRoles[] = {"user", "assistant"}, kText[] = {"text"},
                           kThoughts[] = {"thinking", "redacted_thinking"};

class MessageAnswer final : public Answer {
 public:
  explicit MessageAnswer(ResponseHead head) : head_(std::move(head)) {}

  void add(int, const Output& output, std::string& out) override {
    usage_.add(0, output);
    if (output.finish != FinishReason::kNone) {
      finish_ = output.finish;
      if (!output.stop_token) stop_sequence_ = output.stop_reason;
    }
    if (!head_.request.stream) {
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
    if (!head_.request.stream) {
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
            {"model", head_.request.model},
            {"content", std::move(content)},
            {"stop_reason", std::move(reason)},
            {"stop_sequence", std::move(sequence)},
            {"usage", usage()}};
  }

  // input_tokens excludes tokens read from the cache.
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

void read_text_messages(ApiDraft& draft, const JsonField& field) {
  if (field.array(kMaxMessages).size() == 0) throw field.error("must have at least one message");
  draft.has_messages = true;
  for (const JsonField& message : field.elements()) {
    draft.chat.messages.push_back(read_text_message(message, kRoles, {kText, kThoughts}));
  }
  draft.chat.continue_final_message = draft.chat.messages.back()["role"] == "assistant";
}

void read_system(ApiDraft& draft, const JsonField& field) {
  if (!field.json().is_string() && !field.json().is_array()) {
    throw field.error("expected a string or an array of text blocks, found {}", describe(field.json()));
  }
  draft.instructions = field.json().is_string() ? field.string() : join_parts(field);
}

void read_thinking(ApiDraft& draft, const JsonField& field) {
  const JsonField type = field.at("type");
  const std::string& name = type.string();
  if (name != "enabled" && name != "disabled" && name != "adaptive") {
    throw type.error("{} is not supported; allowed: \"enabled\", \"disabled\", \"adaptive\"", describe(type.json()));
  }
  // Templates of models that can think know this variable; chat_template_kwargs wins.
  if (name != "adaptive") draft.chat.kwargs.emplace("enable_thinking", name == "enabled");
  if (field.has("budget_tokens")) draft.without_effect.emplace_back("thinking.budget_tokens");
}

void read_context_management(ApiDraft& draft, const JsonField& field) {
  if (const auto edits = field.object().find("edits")) {
    for (const JsonField& edit : edits->elements(64)) {
      const JsonField type = edit.at("type");
      if (type.string().starts_with("clear_")) continue;  // tool uses and thinking, which prompts here do not have
      throw type.error("{} is not supported; shorten the messages instead", describe(type.json()));
    }
  }
  draft.without_effect.emplace_back("context_management");
}

void read_output_config(ApiDraft& draft, const JsonField& field) {
  if (const auto format = field.object().find("format")) read_output_format(draft, *format);
  // The chat template decides what it means.
  if (const auto effort = field.find("effort")) draft.chat.kwargs.emplace("reasoning_effort", effort->string());
}

std::unique_ptr<Answer> message_answer(ResponseHead head) { return std::make_unique<MessageAnswer>(std::move(head)); }

}  // namespace quire
