// A request to /v1/chat/completions or /v1/completions, checked and put into Quire's terms.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "quire/sampling_params.h"
#include "server/bounded_json.h"
#include "text/chat_template.h"

namespace quire {

enum class Api : uint8_t { kChat = 1, kCompletion = 2 };

using Prompt = std::variant<std::string, TokenIds>;

inline constexpr int kMaxPrompts = 1024;  // of one request to /v1/completions

struct ApiRequest {
  Api api = Api::kChat;
  std::string model;        // one of the served names
  SamplingParams sampling;  // valid; seed 0 unless has_seed
  bool has_seed = false;

  ChatInput chat;               // chat: contents are strings, arguments of tool calls objects
  std::vector<Prompt> prompts;  // completion: at least one

  bool stream = false;
  bool include_usage = false;                 // stream_options: a last chunk with the usage
  bool continuous_usage_stats = false;        // stream_options: the usage so far in every chunk
  bool echo = false;                          // completion: the answer begins with the prompt
  bool add_special_tokens = true;             // completion: BOS and the like around a text prompt
  bool return_tokens_as_token_ids = false;    // logprobs name tokens "token_id:17"
  std::optional<int> truncate_prompt_tokens;  // the last so many tokens of the prompt

  std::vector<std::string> without_effect;  // fields that were accepted and do nothing
};

struct ApiLimits {
  std::span<const std::string> models;  // served names; the first is meant where a request names none
  int vocab_size = 0;
  int max_model_len = 0;
};

// Throws ApiError and nothing else: 400 naming the field, what was found and what is allowed; 404 for an unknown model.
// A parameter that would change the answer and that Quire does not support is a 400; unknown ones land in
// without_effect.
ApiRequest parse_api_request(Api api, std::string_view body, const ApiLimits& limits);

}  // namespace quire
