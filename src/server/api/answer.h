// Answers in the shapes of their APIs: whole bodies, and the events of streams.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quire/engine.h"
#include "server/api/error.h"
#include "server/api/request.h"

namespace quire {

// What every part of one response repeats.
struct ResponseHead {
  Api api = Api::kChat;
  bool stream = false;
  std::string id;  // chatcmpl-…, cmpl-…, resp_…, msg_…
  std::string model;
  int64_t created = 0;  // seconds since 1970
  int choices = 1;      // prompts * n; a choice's number is prompt * n + Output::choice
  int n = 1;
  int prompt_tokens = 0;          // of all prompts
  std::vector<std::string> echo;  // completion: one text a prompt that its answers begin with; empty: none
  std::vector<TokenIds> prompts;  // with token_ids
  bool logprobs = false;          // were asked for: of the answer, and with echo of the prompt
  bool prompt_logprobs = false;   // were asked for beside the answer
  bool tokens_as_ids = false;
  bool token_ids = false;                                      // the ids beside the texts
  bool include_usage = false, continuous_usage_stats = false;  // of streams
  bool base64 = false;                                         // of embeddings
  Json repeated = {};                                          // response: fields of the request that it says again
};

using TokenBytes = std::function<std::string(TokenId)>;  // any bytes, half a character for instance

// One response in the making, whole or streamed. What it says is appended to `out`.
class Answer {
 public:
  virtual ~Answer() = default;
  // Of a stream: the events that can be said now, if any. A whole body says nothing yet.
  virtual void add(int choice, const Output& output, std::string& out) = 0;
  // Every choice has ended well: the whole body, or the stream's last events.
  virtual void end(std::string& out) = 0;
  // The last event of a stream that failed after it had begun. (Before that, and not streamed: error_body.)
  virtual void fail(const ApiError& error, std::string& out);
};
std::unique_ptr<Answer> make_answer(ResponseHead head, TokenBytes token_bytes);

// A body that needed no engine.
std::unique_ptr<Answer> ready_answer(std::string body);

// text as a JSON string, quotes included. It must be well-formed UTF-8.
void append_json_string(std::string_view text, std::string& out);

}  // namespace quire
