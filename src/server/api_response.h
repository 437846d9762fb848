// Answers in OpenAI's shapes: whole bodies, and the events of streams.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/engine.h"
#include "server/api_error.h"
#include "server/api_request.h"

namespace quire {

// What every part of one response repeats.
struct ResponseHead {
  Api api = Api::kChat;
  std::string id;  // chatcmpl-… or cmpl-…
  std::string model;
  int64_t created = 0;  // seconds since 1970
  int choices = 1;      // prompts * n; a choice's number is prompt * n + Output::choice
  int n = 1;
  int prompt_tokens = 0;          // of all prompts
  std::vector<std::string> echo;  // one text a prompt that its answers begin with; empty: none
  bool logprobs = false;          // were asked for
  bool tokens_as_ids = false;
  bool include_usage = false, continuous_usage_stats = false;  // of streams
};

using TokenBytes = std::function<std::string(TokenId)>;  // any bytes, half a character for instance

// Log-probabilities of an answer's tokens, in either API's shape. `offset` is where the next token's text begins in the
// answer, in characters; it is moved on. (text_offset counts what the tokens say, as vLLM does.)
Json logprobs_json(const ResponseHead& head, const std::vector<OutputToken>& tokens, const TokenBytes& token_bytes,
                   size_t& offset);

// The name of an ended answer's finish: "stop" or "length".
std::string_view finish_name(FinishReason reason);

// Not streamed: collects outputs, gives the body.
class AnswerBody {
 public:
  AnswerBody(ResponseHead head, TokenBytes token_bytes);
  void add(int choice, const Output& output);
  std::string json() const;

 private:
  struct Choice {
    std::string text, stop_reason;
    std::vector<OutputToken> tokens;
    FinishReason finish = FinishReason::kNone;
    bool by_token = false;  // what stop_reason names is a token
    int completion_tokens = 0;
  };
  Json choice_json(size_t index) const;

  ResponseHead head_;
  TokenBytes token_bytes_;
  std::vector<Choice> choices_;
};

// Streamed: server-sent events, appended to `out`.
class AnswerStream {
 public:
  AnswerStream(ResponseHead head, TokenBytes token_bytes);
  // At most three events: the role or the echo, the text, the finish. None when there is nothing to say yet.
  void add(int choice, const Output& output, std::string& out);
  // The usage, if asked for, and [DONE]. After an error nothing: the error was the last event.
  void end(std::string& out) const;

 private:
  struct Choice {
    bool begun = false;
    size_t offset = 0;  // in characters
    int completion_tokens = 0;
  };
  void event(int choice, std::string_view delta, const Json* logprobs, const Output* finish, std::string& out) const;
  Json usage() const;

  ResponseHead head_;
  TokenBytes token_bytes_;
  std::string prefix_;  // of every event, up to the choices
  std::vector<Choice> choices_;
};

// The last event of a stream that failed.
void append_error_event(const ApiError& error, std::string& out);

// text as a JSON string, quotes included. It must be well-formed UTF-8.
void append_json_string(std::string_view text, std::string& out);

}  // namespace quire
