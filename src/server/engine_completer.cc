#include "server/engine_completer.h"

#include "text/tokenizer.h"

namespace quire {

RequestId EngineCompleter::submit(Request request, Engine::Callback callback) {
  return engine_.submit(std::move(request), std::move(callback));
}
void EngineCompleter::cancel(RequestId id) { engine_.cancel(id); }
const ModelInfo& EngineCompleter::info() const { return engine_.info(); }
EngineStats EngineCompleter::stats() const { return engine_.stats(); }

TokenIds EngineCompleter::encode_chat(ChatInput input) const { return engine_.encode_chat(std::move(input)); }

TokenIds EngineCompleter::encode(std::string_view text, bool add_special) const {
  return engine_.tokenizer().encode(text, {.add_special = add_special});
}

std::string EngineCompleter::decode(const TokenIds& ids) const { return engine_.tokenizer().decode(ids); }

std::string EngineCompleter::token_text(TokenId id) const { return std::string(engine_.tokenizer().token_text(id)); }

std::string EngineCompleter::token_bytes(TokenId id) const {
  const Tokenizer& tokenizer = engine_.tokenizer();
  const std::string_view bytes = tokenizer.token_bytes(id);
  return std::string(bytes.empty() ? tokenizer.token_text(id) : bytes);
}

}  // namespace quire
