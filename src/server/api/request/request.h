// A request to one of the APIs, checked and in Quire's terms.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "json/field.h"
#include "json/parse.h"
#include "quire/engine.h"
#include "server/api/keep_alive.h"
#include "text/chat_template.h"
#include "text/infill.h"

namespace quire {

struct ApiDefinition;
struct ApiDraft;

// Text, token ids, or a sequence of both, as llama.cpp's clients send it: [1, "Hello", 2].
using PromptPiece = std::variant<std::string, TokenIds>;
using MixedPrompt = std::vector<PromptPiece>;
using Prompt = std::variant<std::string, TokenIds, MixedPrompt>;

inline constexpr int kMaxPrompts = 2048;             // in one request; also the limit for prompts times n
inline constexpr size_t kMaxBodyValues = 1'000'000;  // JSON values; the largest bodies are prompts of token ids

// Which tool the model may or must call.
struct ToolChoice {
  enum Kind : uint8_t { kAuto, kNone, kRequired, kNamed };
  Kind kind = kAuto;
  std::string name = {};  // only for kNamed
};

// The parts of a tool's definition that the chat template has no use for.
struct ToolRule {
  std::string name;               // as the model sees it
  std::string name_space = {};    // response: its first part, which answers name by itself
  bool strict = false;            // arguments match the schema even if no call is forced
  bool any_object = false;        // not even then, because the schema cannot be followed
  std::string schema_field = {};  // "tools[0].function.parameters"
};

// The base is what each prompt asks of the engine: its sampling is valid, its seed 0 unless has_seed; prompt, tenant
// and banned_runs are set later.
struct ApiRequest : Request {
  const ApiDefinition* api = nullptr;  // the endpoint
  std::string model;                   // one of the served names, as the request has it
  bool has_seed = false;

  // Either a chat or prompts. In a chat, contents are strings, arguments of tool calls are objects, and roles are named
  // as in OpenAI's chats.
  ChatInput chat;
  std::vector<Prompt> prompts;
  std::vector<size_t> chat_items;           // each message's place in the client's list; empty: the same
  std::optional<std::string> instructions;  // response, message: also the chat's first message, from the system

  std::optional<std::string> suffix;     // completion, generate, infill: fill in between the prompt, a text, and this
  std::vector<InfillFile> infill_files;  // infill: other files

  Json tools = nullptr;              // a chat's, in OpenAI's form; null: none that may be called
  std::vector<ToolRule> tool_rules;  // for all tools, also those that may not be called
  ToolChoice tool_choice;            // never kNone with tools
  bool parallel_tool_calls = true;   // false: further calls are left out
  bool functions = false;            // chat: the deprecated functions, and function_call in the answer
  bool include_reasoning = true;     // false: reasoning is left out
  std::optional<int> max_reasoning_tokens;
  bool think = false;      // Ollama's: thoughts are asked for, which the model must be able to have
  int larger_context = 0;  // Ollama's: a context that was asked for and is larger than the server's; 0: none
  std::optional<KeepAlive> keep_alive = {};  // Ollama's: how long the model stays loaded afterwards
  std::string adapter_path = {};             // load_lora_adapter: where the adapter `adapter` is
  std::string destination = {};              // Ollama's copy: the alias
  bool only_loads = false;                   // Ollama's: has neither messages nor a prompt, and wants the model loaded

  bool stream = false;
  bool include_usage = false;                 // stream_options: a last chunk with the usage
  bool continuous_usage_stats = false;        // stream_options: the usage so far in every chunk
  bool echo = false;                          // completion: the answer begins with the prompt
  bool add_special_tokens = true;             // add BOS and the like to text prompts
  std::optional<bool> parse_special;          // "<|im_end|>" in a text is that token; by default in prompts only
  bool return_tokens_as_token_ids = false;    // logprobs name tokens "token_id:17"
  bool return_token_ids = false;              // also return the ids of prompt and answer
  bool prompt_logprobs = false;               // requested by name; echo with logprobs sets sampling.prompt_logprobs too
  std::optional<int> truncate_prompt_tokens;  // keep only this many tokens, the prompt's last
  bool truncate_end = false;                  // keep the prompt's first tokens instead

  // rerank, score: each document is scored for the query, or for the query of its number if there are several.
  std::vector<std::string> queries, documents;
  int top_n = 0;                 // rerank: only so many of the best documents; 0: all
  bool return_documents = true;  // rerank: with their texts
  bool scores_pairs = false;     // the model reads a query and a document together; false: it embeds each of them

  bool base64 = false;             // embedding: float32, little-endian
  bool return_token_strs = false;  // tokenize
  bool plain_tokens = false;       // tokenize: asked and answered in llama.cpp's form
  bool with_pieces = false;        // likewise: with the text of each token
  uint16_t layer = 0, head = 0;    // dashboard/explain: what is shown

  std::vector<std::string> response_fields;  // llama.cpp's: only these members of the answer; empty: all

  std::optional<ConstraintSource> constraint_source;  // compiled later into Request::constraint
  Json as_sent = Json::object();                      // response: parameters that the answer repeats
  std::string constraint_field;                       // its parameter: "response_format.json_schema.schema"

  std::vector<std::string> without_effect;  // fields that were accepted and do nothing; of unknown ones, at most 64
  std::vector<std::string> notes;           // what else was left out or changed: sentences, each of them logged once
};

// Adds a note unless the request has it already, or has more than the log would show.
void add_note(ApiRequest& request, std::string note);

struct ApiLimits {
  std::span<const std::string> models;               // served names; the first is the default
  std::span<const std::string> model_prefixes = {};  // names that begin with one of these are served as well
  int vocab_size = 0;
  int max_model_len = 0;
  int embedding_size = 0;            // numbers in an embedding
  Pooling pooling = Pooling::kNone;  // for requests that do not say; kNone: mean
  SamplingDefaults sampling = {};    // for requests that say nothing else
};

// A text without an object is an ApiError.
JsonField parse_body(std::string_view text);

// Throws only ApiError: 400 naming the field, the value found and what is allowed; 404 for an unknown model. Parameters
// that would change the answer and that Quire does not support get a 400; unknown ones land in without_effect.
ApiRequest parse_api_request(const ApiDefinition& api, const JsonField& body, const ApiLimits& limits);
ApiRequest parse_api_request(const ApiDefinition& api, std::string_view body, const ApiLimits& limits);

// For endpoints that embed: the request's pooling, else the model's, else the mean.
void settle_pooling(ApiDraft& draft);

}  // namespace quire
