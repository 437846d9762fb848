#include <charconv>

#include "server/api/logprobs.h"
#include "server/endpoints/chat.h"

namespace quire {

namespace {

class ChatStream final : public Answer {
 public:
  ChatStream(ResponseHead head, TokenBytes token_bytes)
      : head_(std::move(head)),
        token_bytes_(std::move(token_bytes)),
        choices_(static_cast<size_t>(head_.choices())),
        usage_(head_.choices()) {
    const Json start = {{"id", head_.id},
                        {"object", head_.request.api == Api::kChat ? "chat.completion.chunk" : "text_completion"},
                        {"created", head_.created},
                        {"model", head_.request.model}};
    prefix_ = "data: " + dump(start);
    prefix_.back() = ',';  // each event continues the object
  }

  // Appends at most three events: the role or the echo, the text, the finish.
  void add(int index, const Output& output, std::string& out) override {
    Choice& choice = choices_.at(static_cast<size_t>(index));
    const bool chat = head_.request.api == Api::kChat, finished = output.finish != FinishReason::kNone;
    if (!choice.begun) begin(index, output, out);
    usage_.add(static_cast<size_t>(index), output);

    Extra extra;
    if (head_.request.sampling.logprobs && !output.tokens.empty()) {
      extra.logprobs = logprobs_json(head_, output.tokens, token_bytes_, choice.offset);
    }
    if (head_.request.return_token_ids && !output.tokens.empty()) extra.token_ids = token_ids_json(output.tokens);
    const Output* end = finished ? &output : nullptr;
    // Completions put the finish into the event of the last text, chats into one of its own with an empty delta.
    if (!output.text.empty() || extra || (!chat && finished)) {
      std::string delta = chat ? R"("delta":{"content":)" : R"("text":)";
      append_json_string(output.text, delta);
      if (chat) delta += '}';
      event(index, delta, extra, chat ? nullptr : end, out);
    }
    if (chat && finished) event(index, R"("delta":{})", {}, end, out);
  }

  void end(std::string& out) override {
    if (head_.request.include_usage)
      out += prefix_ + R"("choices":[],"usage":)" + dump(usage_json(head_, usage_)) + "}\n\n";
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

  void begin(int index, const Output& output, std::string& out) {
    Choice& choice = choices_[static_cast<size_t>(index)];
    const auto prompt = static_cast<size_t>(index / head_.n());
    choice.begun = true;
    Extra extra;
    if (head_.request.return_token_ids) extra.prompt_token_ids = head_.prompt_ids[prompt];
    if (head_.request.api == Api::kChat) {
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
      append_json_string(finish_name(finish->finish), out);
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
      out += R"(,"usage":)" + dump(usage_json(head_, usage_));
    } else if (head_.request.include_usage) {
      out += R"(,"usage":null)";
    }
    out += "}\n\n";
  }

  ResponseHead head_;
  TokenBytes token_bytes_;
  std::string prefix_;  // of every event, before the choices
  std::vector<Choice> choices_;
  UsageSum usage_;
};

}  // namespace

std::unique_ptr<Answer> chat_stream(ResponseHead head, TokenBytes token_bytes) {
  return std::make_unique<ChatStream>(std::move(head), std::move(token_bytes));
}

}  // namespace quire
