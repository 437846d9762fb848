// What the server needs of an engine: one seam, filled by the Engine and, in tests, by a script.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "quire/engine.h"
#include "text/chat_template.h"

namespace quire {

// Every member may be called from any thread, also from inside a callback.
class Completer {
 public:
  virtual ~Completer() = default;

  // As Engine::submit and Engine::cancel.
  virtual RequestId submit(Request request, Engine::Callback callback) = 0;
  virtual void cancel(RequestId id) = 0;

  virtual const ModelInfo& info() const = 0;
  virtual EngineStats stats() const = 0;
  // Bytes per second that this machine reads at best; 0: not known.
  virtual double read_bandwidth() const { return 0; }

  // The tokenizer as GET /tokenizer_info describes it: fields of a tokenizer_config.json.
  virtual nlohmann::ordered_json tokenizer_info() const = 0;
  virtual TokenIds encode_chat(ChatInput input) const = 0;
  virtual TokenRuns spellings(const std::vector<std::string>& words) const = 0;  // as Engine::spellings
  virtual TokenIds encode(std::string_view text, bool add_special) const = 0;
  virtual std::string decode(const TokenIds& ids) const = 0;
  virtual std::string token_text(TokenId id) const = 0;   // as the vocabulary spells it: "Ġworld"
  virtual std::string token_bytes(TokenId id) const = 0;  // of a special token its name: "<|im_end|>"
};

}  // namespace quire
