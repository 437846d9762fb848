// Answers in the shapes of their APIs: whole bodies and events of streams.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "json/quote.h"
#include "quire/engine.h"
#include "server/api/answer/answer_reader.h"
#include "server/api/error.h"
#include "server/api/request/request.h"

namespace quire {

// One response: its request and what the server adds.
struct ResponseHead {
  ApiRequest request = {};                                 // without prompts and messages
  std::string id = {};                                     // chatcmpl-…, cmpl-…, resp_…, msg_…
  int64_t created = 0;                                     // seconds since 1970
  int prompts = 1;                                         // a choice's number is prompt * n + Output::choice
  Score score = Score::kRaw;                               // how a classifier's results are scaled
  int prompt_tokens = 0;                                   // sum over all prompts
  std::vector<std::string> echo = {};                      // the text of each prompt, if request.echo is set
  std::vector<TokenIds> prompt_ids = {};                   // each prompt's tokens, if request.return_token_ids is set
  std::shared_ptr<const AnswerReading> reading = nullptr;  // null: answers are text

  int n() const { return request.sampling.n; }
  int choices() const { return prompts * n(); }
};

using TokenBytes = std::function<std::string(TokenId)>;  // any bytes, half a character for instance

// Builds one response, whole or streamed, and appends it to `out`.
class Answer {
 public:
  virtual ~Answer() = default;
  // Appends the events that `output` completes. A whole body appends nothing yet.
  virtual void add(int choice, const Output& output, std::string& out) = 0;
  // Called after every choice has ended well. Appends the whole body, or the stream's last events.
  virtual void end(std::string& out) = 0;
  // Appends the last event of a stream that failed after its start. (All other failures are an error_body().)
  virtual void fail(const ApiError& error, std::string& out);
  // The Content-Type of a stream.
  virtual std::string_view stream_type() const { return "text/event-stream; charset=utf-8"; }
};

// A body that needs no engine.
std::unique_ptr<Answer> ready_answer(std::string body);

// JSON parts that several APIs share.

std::string dump(const Json& json);

// Appends a server-sent event whose name is data["type"], as OpenAI's responses and Anthropic's messages have them.
void append_typed_event(const Json& data, std::string& out);

// "msg_" and 32 random hexadecimal digits.
std::string random_id(std::string_view prefix);

// A call's arguments as an object. If they are none, because the call was cut off: {"INVALID_JSON": arguments}, as
// Anthropic's documents advise.
Json call_arguments_json(const std::string& arguments);

// "stop" or "length".
std::string_view finish_name(FinishReason reason);

// vLLM's stop_reason: a stop string, or a stop token's id as a number.
Json stop_reason_json(const std::string& reason, bool by_token);

Json token_ids_json(const std::vector<OutputToken>& tokens);

// Counts the tokens of a response.
struct UsageSum {
  explicit UsageSum(int choices) : completion(static_cast<size_t>(choices)), cached(completion) {}
  void add(size_t choice, const Output& output);
  int completion_tokens() const;
  int cached_tokens(int n) const;  // counted once for the n choices of a prompt

  std::vector<int> completion, cached;
  int drafted = 0, accepted = 0;  // by speculative decoding
};
// `reasoning_tokens`: of answers that are read for reasoning.
Json usage_json(const ResponseHead& head, const UsageSum& sum, std::optional<int> reasoning_tokens = {});

}  // namespace quire
