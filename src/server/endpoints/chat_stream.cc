#include <fmt/format.h>

#include <charconv>

#include "server/endpoints/chat.h"
#include "server/endpoints/logprobs.h"

namespace quire {

namespace {

class ChatStream final : public Answer {
 public:
  ChatStream(ResponseHead head, TokenBytes token_bytes)
      : head_(std::move(head)),
        token_bytes_(std::move(token_bytes)),
        choices_(static_cast<size_t>(head_.choices())),
        reader_(head_.reading, head_.choices()),
        usage_(head_.choices()) {
    const Json start = {{"id", head_.id},
                        {"object", is_chat(head_) ? "chat.completion.chunk" : "text_completion"},
                        {"created", head_.created},
                        {"model", head_.request.model}};
    prefix_ = "data: " + dump(start);
    prefix_.back() = ',';  // each event continues the object
  }

  // Appends the role or the echo, an event for each piece, and the finish.
  void add(int index, const Output& output, std::string& out) override {
    Choice& choice = choices_.at(static_cast<size_t>(index));
    const bool chat = is_chat(head_), finished = output.finish != FinishReason::kNone;
    if (!choice.begun) begin(index, output, out);
    usage_.add(static_cast<size_t>(index), output);

    Extra extra;
    if (head_.request.sampling.logprobs && !output.tokens.empty()) {
      extra.logprobs = logprobs_json(head_, output.tokens, token_bytes_, choice.offset);
    }
    if (head_.request.return_token_ids && !output.tokens.empty()) extra.token_ids = token_ids_json(output.tokens);
    const Output* end = finished ? &output : nullptr;
    std::span<const AnswerPiece> pieces = reader_.read(index, output);
    // What belongs to tokens stands in the event of their first piece, or in one of an empty text.
    static const AnswerPiece kEmpty;
    if (pieces.empty() && (extra || (!chat && finished))) pieces = {&kEmpty, 1};
    for (const AnswerPiece& piece : pieces) {
      if (piece.kind == AnswerPiece::kCallEnd && !extra) continue;
      // Completions put the finish into the event of the last text, chats into one of its own with an empty delta.
      event(index, chat ? chat_delta(piece) : text_delta(piece), extra, chat ? nullptr : end, out);
      extra = {};
    }
    if (chat && finished) event(index, R"("delta":{})", {}, end, out);
  }

  void end(std::string& out) override {
    if (head_.request.include_usage)
      out +=
          prefix_ + R"("choices":[],"usage":)" + dump(usage_json(head_, usage_, reader_.reasoning_tokens())) + "}\n\n";
    out += "data: [DONE]\n\n";
  }

 private:
  struct Choice {
    bool begun = false;
    TextOffset offset = 0;
  };
  // What only some events of a choice have; null: not this one.
  struct Extra {
    Json logprobs, token_ids, prompt_token_ids;
    explicit operator bool() const { return !logprobs.is_null() || !token_ids.is_null(); }
  };

  static std::string text_delta(const AnswerPiece& piece) {
    std::string delta = R"("text":)";
    append_json_string(piece.text, delta);
    return delta;
  }

  std::string chat_delta(const AnswerPiece& piece) const {
    std::string delta = R"("delta":{)";
    const bool functions = head_.request.functions;
    switch (piece.kind) {
      case AnswerPiece::kText:
        delta += R"("content":)";
        append_json_string(piece.text, delta);
        break;
      case AnswerPiece::kReasoning:
        delta += R"("reasoning_content":)";
        append_json_string(piece.text, delta);
        delta += R"(,"reasoning":)";
        append_json_string(piece.text, delta);
        break;
      // A call's first event has its id, type and name, further ones only its index: the AI SDK of OpenCode needs them
      // once, before arguments, and OpenAI's clients join equal strings, so that a repeated id would be another one.
      case AnswerPiece::kCallBegin:
        delta += functions ? R"("function_call":{)"
                           : fmt::format(R"("tool_calls":[{{"index":{},"id":"{}","type":"function","function":{{)",
                                         piece.call, random_id("call_"));
        delta += R"("name":)";
        append_json_string(piece.text, delta);
        delta += R"(,"arguments":"")";
        delta += functions ? "}" : "}}]";
        break;
      case AnswerPiece::kCallArguments:
        delta +=
            functions ? R"("function_call":{)" : fmt::format(R"("tool_calls":[{{"index":{},"function":{{)", piece.call);
        delta += R"("arguments":)";
        append_json_string(piece.text, delta);
        delta += functions ? "}" : "}}]";
        break;
      case AnswerPiece::kCallEnd:
        break;
    }
    return delta += '}';
  }

  void begin(int index, const Output& output, std::string& out) {
    Choice& choice = choices_[static_cast<size_t>(index)];
    const auto prompt = static_cast<size_t>(index / head_.n());
    choice.begun = true;
    Extra extra;
    if (head_.request.return_token_ids) extra.prompt_token_ids = head_.prompt_ids[prompt];
    if (is_chat(head_)) {
      event(index, R"("delta":{"role":"assistant","content":""})", extra, nullptr, out);
    } else if (!head_.echo.empty() || head_.request.return_token_ids) {
      std::string delta = R"("text":)";
      append_json_string(head_.echo.empty() ? "" : head_.echo[prompt], delta);
      if (head_.request.sampling.logprobs && !head_.echo.empty()) {
        extra.logprobs = logprobs_json(head_, {}, token_bytes_, choice.offset, &output.prompt_logprobs);
      }
      event(index, delta, extra, nullptr, out);
    }
  }

  // Written by hand: a stream has thousands of events that differ only in index, delta and finish.
  void event(int choice, std::string_view delta, const Extra& extra, const Output* finish, std::string& out) const {
    char index[16];
    const auto index_end = std::to_chars(index, index + sizeof index, choice).ptr;
    out += prefix_;
    out += R"("choices":[{"index":)";
    out.append(index, index_end);
    out += ',';
    out += delta;
    out += R"(,"logprobs":)";
    out += extra.logprobs.is_null() ? "null" : dump(extra.logprobs);
    out += R"(,"finish_reason":)";
    if (finish) {
      append_json_string(chat_finish_name(head_, finish->finish, reader_.called(choice)), out);
      if (!finish->stop_reason.empty()) {
        out += R"(,"stop_reason":)" + dump(stop_reason_json(finish->stop_reason, finish->stop_token.has_value()));
      }
    } else {
      out += "null";
    }
    if (!extra.token_ids.is_null()) out += R"(,"token_ids":)" + dump(extra.token_ids);
    if (!extra.prompt_token_ids.is_null()) out += R"(,"prompt_token_ids":)" + dump(extra.prompt_token_ids);
    out += "}]";
    if (head_.request.continuous_usage_stats) {
      out += R"(,"usage":)" + dump(usage_json(head_, usage_, reader_.reasoning_tokens()));
    } else if (head_.request.include_usage) {
      out += R"(,"usage":null)";
    }
    out += "}\n\n";
  }

  ResponseHead head_;
  TokenBytes token_bytes_;
  std::string prefix_;  // what every event has before the choices
  std::vector<Choice> choices_;
  AnswerReader reader_;
  UsageSum usage_;
};

}  // namespace

std::unique_ptr<Answer> chat_stream(ResponseHead head, TokenBytes token_bytes) {
  return std::make_unique<ChatStream>(std::move(head), std::move(token_bytes));
}

}  // namespace quire
