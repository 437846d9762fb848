#include "server/engine_completer.h"

#include <fmt/format.h>

#include "base/team.h"
#include "engine/dtype_names.h"
#include "kernels/types.h"
#include "ops/cpu/cpu_backend.h"
#include "ops/cpu/probe.h"
#include "quire/error.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {

RequestId EngineCompleter::submit(Request request, Engine::Callback callback) {
  return engine_.submit(std::move(request), std::move(callback));
}
void EngineCompleter::cancel(RequestId id) { engine_.cancel(id); }
std::vector<AdapterInfo> EngineCompleter::adapters() const { return engine_.adapters(); }
void EngineCompleter::add_adapter(const AdapterOption& adapter) { engine_.add_adapter(adapter); }
void EngineCompleter::remove_adapter(std::string_view name) { engine_.remove_adapter(name); }
const ModelInfo& EngineCompleter::info() const { return engine_.info(); }
EngineStats EngineCompleter::stats() const { return engine_.stats(); }
EngineSnapshot EngineCompleter::snapshot() const { return engine_.snapshot(); }
Explanation EngineCompleter::explain(const ExplainRequest& request) const { return engine_.explain(request); }

double EngineCompleter::measure_multiply_rate() const {
  const ModelInfo& info = engine_.info();
  const auto activations = find_value(kActivationsNames, info.activations);
  if (!activations) return 0;
  Team team(info.threads);
  const CpuBackend cpu(info.kernels, team);
  return multiply_rate(cpu.compute(multiply_unit(kernel_form(*activations))), 2);
}

nlohmann::ordered_json EngineText::tokenizer_info() const {
  const Tokenizer& tokenizer = engine_.tokenizer();
  nlohmann::ordered_json info = {{"vocab_size", tokenizer.vocab_size()},
                                 {"model_max_length", engine_.info().max_model_len},
                                 {"add_bos_token", tokenizer.adds_bos()},
                                 {"add_eos_token", tokenizer.adds_eos()}};
  for (const auto& [name, token] : {std::pair{"bos_token", tokenizer.bos()},
                                    {"eos_token", tokenizer.eos()},
                                    {"unk_token", tokenizer.unk()},
                                    {"pad_token", tokenizer.pad()}}) {
    info[name] = token ? nlohmann::ordered_json(tokenizer.token_text(*token)) : nullptr;
  }
  const ChatTemplate* chat = engine_.chat_template();
  info["chat_template"] = chat ? nlohmann::ordered_json(chat->source()) : nullptr;
  auto& special = info["added_tokens_decoder"] = nlohmann::ordered_json::object();
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_special(id))
      special[std::to_string(id)] = {{"content", tokenizer.token_text(id)}, {"special", true}};
  }
  return info;
}

TokenIds EngineText::encode_chat(ChatInput input) const { return engine_.encode_chat(std::move(input)); }

std::string EngineText::render_chat(ChatInput input) const { return engine_.render(std::move(input)); }

std::string EngineText::chat_template_source() const {
  const ChatTemplate* chat = engine_.chat_template();
  return chat ? chat->source() : std::string();
}

bool EngineText::is_added_token(std::string_view text) const {
  if (!engine_.chat_template()) return false;  // a model without a vocabulary has none
  const auto id = engine_.tokenizer().find(text);
  return id && engine_.tokenizer().is_added(*id);
}

TokenRuns EngineText::spellings(const std::vector<std::string>& words) const { return engine_.spellings(words); }

Constraint EngineText::compile(const ConstraintSource& source) const { return engine_.compile(source); }

TokenIds EngineText::encode(std::string_view text, EncodeOptions options) const {
  return engine_.tokenizer().encode(text, options);
}

TokenPair EngineText::encode_pair(std::string_view query, std::string_view document, size_t most_tokens) const {
  return engine_.encode_pair(query, document, most_tokens);
}

bool EngineText::can_infill() const try { return quire::can_infill(engine_.tokenizer()); } catch (const Error&) {
  return false;  // the model has no vocabulary
}

TokenIds EngineText::encode_infill(const InfillInput& input) const {
  return quire::encode_infill(engine_.tokenizer(), input);
}

TokenIds EngineText::infill_ends() const { return quire::infill_ends(engine_.tokenizer()); }

std::string EngineText::decode(const TokenIds& ids) const { return engine_.tokenizer().decode(ids); }

// Without a vocabulary, tokens have vLLM's names for token ids.
std::string EngineText::token_text(TokenId id) const try {
  return std::string(engine_.tokenizer().token_text(id));
} catch (const Error&) {
  return fmt::format("token_id:{}", id);
}

std::string EngineText::token_bytes(TokenId id) const try {
  const Tokenizer& tokenizer = engine_.tokenizer();
  const std::string_view bytes = tokenizer.token_bytes(id);
  return std::string(bytes.empty() ? tokenizer.token_text(id) : bytes);
} catch (const Error&) {
  return fmt::format("token_id:{}", id);
}

}  // namespace quire
