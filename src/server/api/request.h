// A request to one of the APIs, checked and put into Quire's terms.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "quire/engine.h"
#include "server/api/body_json.h"
#include "text/chat_template.h"

namespace quire {

// What has a body with parameters; api_list() says where each is. Bits, so that a parameter can name those it is of.
enum class Api : uint8_t {
  kChat = 1,
  kCompletion = 2,
  kResponse = 4,  // OpenAI's /v1/responses
  kMessage = 8,   // Anthropic's /v1/messages
  kEmbedding = 16,
  kTokenize = 32,
  kDetokenize = 64,
};

using Prompt = std::variant<std::string, TokenIds>;

inline constexpr int kMaxPrompts = 2048;  // of one request; its answers, n to a prompt, are no more either

struct ApiRequest {
  Api api = Api::kChat;
  std::string model;        // one of the served names
  SamplingParams sampling;  // valid; seed 0 unless has_seed
  bool has_seed = false;

  // One of the two. chat: contents are strings, arguments of tool calls objects; roles of other APIs are translated.
  ChatInput chat;
  std::vector<Prompt> prompts;
  std::optional<std::string> instructions;  // response, message: is the chat's first message, of the system

  bool stream = false;
  bool include_usage = false;                 // stream_options: a last chunk with the usage
  bool continuous_usage_stats = false;        // stream_options: the usage so far in every chunk
  bool echo = false;                          // completion: the answer begins with the prompt
  bool add_special_tokens = true;             // BOS and the like around a text prompt
  bool return_tokens_as_token_ids = false;    // logprobs name tokens "token_id:17"
  bool return_token_ids = false;              // the ids of prompt and answer beside the texts
  bool prompt_logprobs = false;               // asked for by name; with echo and logprobs sampling has them too
  std::optional<int> truncate_prompt_tokens;  // the last so many tokens of the prompt
  std::string cache_salt;
  int priority = 0;
  double timeout = 0;  // seconds; 0: the server's alone

  Pooling pooling = Pooling::kNone;  // embedding: kMean or kLast
  bool base64 = false;               // embedding: float32, little-endian
  bool return_token_strs = false;    // tokenize

  std::vector<std::string> without_effect;  // fields that were accepted and do nothing
};

struct ApiLimits {
  std::span<const std::string> models;  // served names; the first is meant where a request names none
  int vocab_size = 0;
  int max_model_len = 0;
  SamplingDefaults sampling = {};  // the model's; a request's own fields win
};

// Throws ApiError and nothing else: 400 naming the field, what was found and what is allowed; 404 for an unknown model.
// A parameter that would change the answer and that Quire does not support is a 400; unknown ones land in
// without_effect.
ApiRequest parse_api_request(Api api, std::string_view body, const ApiLimits& limits);

}  // namespace quire
