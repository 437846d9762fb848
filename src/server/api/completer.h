// The server's interface to an engine. Tests put a scripted model behind it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/explain/explanation.h"
#include "engine/watch/snapshot.h"
#include "quire/engine.h"
#include "text/chat_template.h"
#include "text/infill.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {

// What the tokenizer and the chat template of a model say. Every member may be called from any thread and from a
// callback.
class ServedText {
 public:
  virtual ~ServedText() = default;

  // The body of GET /tokenizer_info: fields of a tokenizer_config.json.
  virtual nlohmann::ordered_json tokenizer_info() const = 0;
  virtual TokenIds encode_chat(ChatInput input) const = 0;
  virtual std::string render_chat(ChatInput input) const = 0;                    // its text
  virtual std::string chat_template_source() const = 0;                          // empty: the model has none
  virtual bool is_added_token(std::string_view text) const = 0;                  // <|im_end|>, <tool_call>
  virtual TokenRuns spellings(const std::vector<std::string>& words) const = 0;  // as Engine::spellings
  virtual Constraint compile(const ConstraintSource& source) const = 0;          // as Engine::compile
  virtual TokenIds encode(std::string_view text, EncodeOptions options) const = 0;
  virtual TokenPair encode_pair(std::string_view query, std::string_view document,
                                size_t most_tokens) const = 0;  // as Engine::encode_pair
  virtual bool can_infill() const = 0;                          // this and the next two: as in text/infill.h
  virtual TokenIds encode_infill(const InfillInput& input) const = 0;
  virtual TokenIds infill_ends() const = 0;
  virtual std::string decode(const TokenIds& ids) const = 0;
  virtual std::string token_text(TokenId id) const = 0;   // as the vocabulary spells it: "Ġworld"
  virtual std::string token_bytes(TokenId id) const = 0;  // a special token gives its spelling: "<|im_end|>"
};

// Every member may be called from any thread and from a callback.
class Completer {
 public:
  virtual ~Completer() = default;

  // As Engine::submit and Engine::cancel.
  virtual RequestId submit(Request request, Engine::Callback callback) = 0;
  virtual void cancel(RequestId id) = 0;

  // As Engine::adapters, add_adapter and remove_adapter.
  virtual std::vector<AdapterInfo> adapters() const { return {}; }
  virtual void add_adapter(const AdapterOption&) { throw unsupported("this model takes no adapters"); }
  virtual void remove_adapter(std::string_view) { throw unsupported("this model takes no adapters"); }

  virtual const ModelInfo& info() const = 0;
  virtual EngineStats stats() const = 0;
  virtual EngineSnapshot snapshot() const { return {}; }  // as Engine::snapshot
  // This machine's memory read bandwidth in bytes per second; 0: unknown.
  virtual double read_bandwidth() const { return 0; }
  // How many multiply-adds a second this machine can do at best, in the form that the model's linears use; 0: unknown.
  // Measures: keeps the engine's number of threads busy for about 0.1 s. Throws std::exception if they cannot be had.
  virtual double measure_multiply_rate() const { return 0; }
  virtual const ServedText& text() const = 0;
  virtual Explanation explain(const ExplainRequest&) const { return {}; }  // as Engine::explain
};

}  // namespace quire
