// Answers in the shapes of their APIs: whole bodies and events of streams.
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

// One response: its request and what the server adds.
struct ResponseHead {
  ApiRequest request = {};                // without prompts and messages
  std::string id = {};                    // chatcmpl-…, cmpl-…, resp_…, msg_…
  int64_t created = 0;                    // seconds since 1970
  int prompts = 1;                        // a choice's number is prompt * n + Output::choice
  int prompt_tokens = 0;                  // of all prompts
  std::vector<std::string> echo = {};     // the text of each prompt, if request.echo is set
  std::vector<TokenIds> prompt_ids = {};  // of each prompt, if request.return_token_ids is set

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
};
std::unique_ptr<Answer> make_answer(ResponseHead head, TokenBytes token_bytes);

// A body that needs no engine.
std::unique_ptr<Answer> ready_answer(std::string body);

}  // namespace quire
