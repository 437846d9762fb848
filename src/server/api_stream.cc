#include <charconv>

#include "server/api_response.h"
#include "server/api_shapes.h"

namespace quire {

void append_json_string(std::string_view text, std::string& out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += "\\u00";
          out += kHex[c >> 4 & 15];
          out += kHex[c & 15];
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

void append_error_event(const ApiError& error, std::string& out) { out += "data: " + error_body(error) + "\n\n"; }

AnswerStream::AnswerStream(ResponseHead head, TokenBytes token_bytes)
    : head_(std::move(head)), token_bytes_(std::move(token_bytes)), choices_(static_cast<size_t>(head_.choices)) {
  const Json start = {{"id", head_.id},
                      {"object", head_.api == Api::kChat ? "chat.completion.chunk" : "text_completion"},
                      {"created", head_.created},
                      {"model", head_.model}};
  prefix_ = "data: " + dump(start);
  prefix_.back() = ',';  // the object goes on
}

Json AnswerStream::usage() const {
  int completion_tokens = 0;
  for (const Choice& choice : choices_) completion_tokens += choice.completion_tokens;
  return usage_json(head_.prompt_tokens, completion_tokens);
}

// Written by hand: a stream is thousands of these, of which only index, delta and finish differ.
void AnswerStream::event(int choice, std::string_view delta, const Json* logprobs, const Output* finish,
                         std::string& out) const {
  char index[16];
  const auto index_end = std::to_chars(index, index + sizeof index, choice).ptr;
  out += prefix_;
  out += R"("choices":[{"index":)";
  out.append(index, index_end);
  out += ',';
  out += delta;
  out += R"(,"logprobs":)";
  out += logprobs ? dump(*logprobs) : "null";
  out += R"(,"finish_reason":)";
  if (finish) {
    append_json_string(finish_name(finish->finish), out);
    if (!finish->stop_reason.empty()) {
      out += R"(,"stop_reason":)" + dump(stop_reason_json(finish->stop_reason, finish->stop_token.has_value()));
    }
  } else {
    out += "null";
  }
  out += "}]";
  if (head_.continuous_usage_stats) {
    out += R"(,"usage":)" + dump(usage());
  } else if (head_.include_usage) {
    out += R"(,"usage":null)";
  }
  out += "}\n\n";
}

void AnswerStream::add(int index, const Output& output, std::string& out) {
  Choice& choice = choices_.at(static_cast<size_t>(index));
  const bool chat = head_.api == Api::kChat, finished = output.finish != FinishReason::kNone;
  if (!choice.begun) {
    choice.begun = true;
    if (chat) {
      event(index, R"("delta":{"role":"assistant","content":""})", nullptr, nullptr, out);
    } else if (!head_.echo.empty()) {
      std::string delta = R"("text":)";
      append_json_string(head_.echo[static_cast<size_t>(index / head_.n)], delta);
      event(index, delta, nullptr, nullptr, out);
    }
  }
  choice.completion_tokens =
      finished ? output.usage.completion_tokens : choice.completion_tokens + static_cast<int>(output.tokens.size());

  const bool with_logprobs = head_.logprobs && !output.tokens.empty();
  Json logprobs;
  if (with_logprobs) logprobs = logprobs_json(head_, output.tokens, token_bytes_, choice.offset);
  // Completions carry the finish beside the last text; chats have it in an event of its own with an empty delta.
  if (!output.text.empty() || with_logprobs || (!chat && finished)) {
    std::string delta = chat ? R"("delta":{"content":)" : R"("text":)";
    append_json_string(output.text, delta);
    if (chat) delta += '}';
    event(index, delta, with_logprobs ? &logprobs : nullptr, !chat && finished ? &output : nullptr, out);
  }
  if (chat && finished) event(index, R"("delta":{})", nullptr, &output, out);
}

void AnswerStream::end(std::string& out) const {
  if (head_.include_usage) out += prefix_ + R"("choices":[],"usage":)" + dump(usage()) + "}\n\n";
  out += "data: [DONE]\n\n";
}

}  // namespace quire
