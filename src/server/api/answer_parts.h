// Pieces that whole answers and streams share.
#pragma once

#include <charconv>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/answer.h"

namespace quire {

inline std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// make_answer's.
std::unique_ptr<Answer> openai_body(ResponseHead head, TokenBytes token_bytes);
std::unique_ptr<Answer> openai_stream(ResponseHead head, TokenBytes token_bytes);
// Of one text, whole or streamed.
std::unique_ptr<Answer> response_answer(ResponseHead head);
std::unique_ptr<Answer> message_answer(ResponseHead head);
std::unique_ptr<Answer> embeddings_body(ResponseHead head);

// The name of an ended answer's finish: "stop" or "length".
std::string_view finish_name(FinishReason reason);

// vLLM's stop_reason: a stop string, or a stop token's id as a number.
Json stop_reason_json(const std::string& reason, bool by_token);

// Tokens of a response, counted as its choices end.
struct UsageSum {
  explicit UsageSum(int choices) : completion(static_cast<size_t>(choices)), cached(completion) {}
  void add(size_t choice, const Output& output);
  int completion_tokens() const;
  int cached_tokens(int n) const;  // the n choices of a prompt share it

  std::vector<int> completion, cached;
};
Json usage_json(const ResponseHead& head, const UsageSum& sum);

// Where the text of a choice's next token begins, in characters. (It counts what the tokens say, as vLLM does.)
using TextOffset = size_t;

// Log-probabilities of an answer's tokens, in either API's shape. `offset` is moved on. With `echo` the prompt's tokens
// lead, of which the first has none: null.
Json logprobs_json(const ResponseHead& head, const std::vector<OutputToken>& tokens, const TokenBytes& token_bytes,
                   TextOffset& offset, const std::vector<OutputToken>* echo = nullptr);

// vLLM's prompt_logprobs: for each token of the prompt an object from id to {"logprob", "rank", "decoded_token"}; for
// the first one null.
Json prompt_logprobs_json(const std::vector<OutputToken>& tokens, const TokenBytes& token_bytes);

// An event that says its type twice, as OpenAI's responses and Anthropic's messages do: data.type is its name.
void append_typed_event(const Json& data, std::string& out);

Json token_ids_json(const std::vector<OutputToken>& tokens);

}  // namespace quire
