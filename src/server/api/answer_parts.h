// JSON parts that several APIs' answers share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/api/answer.h"

namespace quire {

std::string dump(const Json& json);

// Appends `text` as a JSON string with its quotes. It must be well-formed UTF-8.
void append_json_string(std::string_view text, std::string& out);

// Appends a server-sent event whose name is data["type"], as OpenAI's responses and Anthropic's messages have them.
void append_typed_event(const Json& data, std::string& out);

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
};
Json usage_json(const ResponseHead& head, const UsageSum& sum);

}  // namespace quire
