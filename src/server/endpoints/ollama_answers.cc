// Answers in Ollama's shapes. A stream is a JSON object on each line, the last of which has done: true.
#include <fmt/chrono.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "server/endpoints/logprobs.h"
#include "server/endpoints/ollama.h"

namespace quire {
namespace {

std::string now_text() {
  const auto since =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  return fmt::format("{:%FT%T}.{:06}Z", fmt::gmtime(static_cast<std::time_t>(since / 1'000'000)), since % 1'000'000);
}

int64_t nanoseconds(double seconds) { return static_cast<int64_t>(std::max(0.0, seconds) * 1e9); }

class OllamaAnswer final : public Answer {
 public:
  OllamaAnswer(ResponseHead head, TokenBytes token_bytes)
      : head_(std::move(head)),
        token_bytes_(std::move(token_bytes)),
        chat_(head_.request.api == &ollama_chat_api()),
        reader_(head_.reading, 1) {}

  void add(int, const Output& output, std::string& out) override {
    if (output.finish != FinishReason::kNone) {
      finish_ = output.finish;
      usage_ = output.usage;
    }
    if (head_.request.sampling.logprobs && !output.tokens.empty()) {
      for (Json& token : chat_logprobs_json(head_, output.tokens, token_bytes_)) logprobs_.push_back(std::move(token));
    }
    for (const AnswerPiece& piece : reader_.read(0, output)) add(piece, out);
    if (head_.request.stream && !logprobs_.empty()) write_line(out);  // their tokens have no text yet
  }

  void end(std::string& out) override {
    if (open_call_) end_call(out);  // cut off
    Json line = begin_line();
    line["done"] = true;
    line["done_reason"] = finish_ == FinishReason::kLength ? "length" : "stop";
    line["total_duration"] = nanoseconds(usage_.seconds);
    line["load_duration"] = 0;
    line["prompt_eval_count"] = head_.prompt_tokens;
    line["prompt_eval_duration"] = nanoseconds(usage_.ttft_seconds - usage_.queue_seconds);
    line["eval_count"] = usage_.completion_tokens;
    line["eval_duration"] = nanoseconds(usage_.seconds - usage_.ttft_seconds);
    out += dump(line);
    if (head_.request.stream) out += '\n';
  }

  void fail(const ApiError& error, std::string& out) override { out += error_body(error, ErrorShape::kOllama) + '\n'; }

  std::string_view stream_type() const override { return "application/x-ndjson"; }

 private:
  struct Call {
    std::string name, arguments;
  };

  void add(const AnswerPiece& piece, std::string& out) {
    switch (piece.kind) {
      case AnswerPiece::kText:
        text_ += piece.text;
        break;
      case AnswerPiece::kReasoning:
        thinking_ += piece.text;
        break;
      case AnswerPiece::kCallBegin:
        open_call_ = Call{piece.text, {}};
        return;
      case AnswerPiece::kCallArguments:
        open_call_->arguments += piece.text;
        return;
      case AnswerPiece::kCallEnd:
        return end_call(out);
    }
    if (head_.request.stream) write_line(out);
  }

  void end_call(std::string& out) {
    calls_.push_back({{"id", random_id("call_")},
                      {"function",
                       {{"index", call_count_++},
                        {"name", open_call_->name},
                        {"arguments", call_arguments_json(open_call_->arguments)}}}});
    open_call_.reset();
    if (head_.request.stream) write_line(out);
  }

  void write_line(std::string& out) {
    Json line = begin_line();
    line["done"] = false;
    out += dump(line) + '\n';
  }

  // With what the answer has gained since the last line.
  Json begin_line() {
    Json line = {{"model", head_.request.model}, {"created_at", now_text()}};
    if (chat_) {
      Json message = {{"role", "assistant"}, {"content", std::exchange(text_, {})}};
      if (!thinking_.empty()) message["thinking"] = std::exchange(thinking_, {});
      if (!calls_.empty()) message["tool_calls"] = std::exchange(calls_, Json::array());
      line["message"] = std::move(message);
    } else {
      line["response"] = std::exchange(text_, {});
      if (!thinking_.empty()) line["thinking"] = std::exchange(thinking_, {});
    }
    if (!logprobs_.empty()) line["logprobs"] = std::exchange(logprobs_, Json::array());
    return line;
  }

  ResponseHead head_;
  TokenBytes token_bytes_;
  bool chat_;
  AnswerReader reader_;
  std::string text_, thinking_;  // these and the next two: of a stream, since the last line
  Json calls_ = Json::array(), logprobs_ = Json::array();
  std::optional<Call> open_call_;
  int call_count_ = 0;
  FinishReason finish_ = FinishReason::kNone;
  Usage usage_;
};

class OllamaEmbeddings final : public Answer {
 public:
  explicit OllamaEmbeddings(ResponseHead head)
      : head_(std::move(head)), vectors_(static_cast<size_t>(head_.choices())) {}

  void add(int index, const Output& output, std::string&) override {
    if (!output.embedding.empty()) vectors_.at(static_cast<size_t>(index)) = output.embedding;
    seconds_ = std::max(seconds_, output.usage.seconds);
  }

  void end(std::string& out) override {
    if (head_.request.api == &ollama_embeddings_api()) {
      out += dump({{"embedding", vectors_.front()}});
      return;
    }
    out += dump({{"model", head_.request.model},
                 {"embeddings", vectors_},
                 {"total_duration", nanoseconds(seconds_)},
                 {"load_duration", 0},
                 {"prompt_eval_count", head_.prompt_tokens}});
  }

 private:
  ResponseHead head_;
  std::vector<std::vector<float>> vectors_;
  double seconds_ = 0;
};

}  // namespace

std::unique_ptr<Answer> ollama_answer(ResponseHead head, TokenBytes token_bytes) {
  return std::make_unique<OllamaAnswer>(std::move(head), std::move(token_bytes));
}

std::unique_ptr<Answer> ollama_embeddings(ResponseHead head) {
  return std::make_unique<OllamaEmbeddings>(std::move(head));
}

Json ollama_loaded_json(const ApiRequest& request) {
  Json answer = {{"model", request.model}, {"created_at", now_text()}};
  if (request.api == &ollama_chat_api()) {
    answer["message"] = {{"role", "assistant"}, {"content", ""}};
  } else {
    answer["response"] = "";
  }
  answer["done"] = true;
  const bool unloads = request.keep_alive && *request.keep_alive == KeepAlive(std::chrono::milliseconds(0));
  answer["done_reason"] = unloads ? "unload" : "load";
  return answer;
}

}  // namespace quire
