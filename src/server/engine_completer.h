// The Engine as the server's Completer.
#pragma once

#include <memory>
#include <utility>

#include "server/api/completer.h"

namespace quire {

class EngineText final : public ServedText {
 public:
  // The engine must outlive it.
  explicit EngineText(const Engine& engine) : engine_(engine) {}

  nlohmann::ordered_json tokenizer_info() const override;
  TokenIds encode_chat(ChatInput input) const override;
  std::string render_chat(ChatInput input) const override;
  std::string chat_template_source() const override;
  bool is_added_token(std::string_view text) const override;
  TokenRuns spellings(const std::vector<std::string>& words) const override;
  Constraint compile(const ConstraintSource& source) const override;
  TokenIds encode(std::string_view text, EncodeOptions options) const override;
  TokenPair encode_pair(std::string_view query, std::string_view document, size_t most_tokens) const override;
  bool can_infill() const override;
  TokenIds encode_infill(const InfillInput& input) const override;
  TokenIds infill_ends() const override;
  std::string decode(const TokenIds& ids) const override;
  std::string token_text(TokenId id) const override;
  std::string token_bytes(TokenId id) const override;

 private:
  const Engine& engine_;
};

class EngineCompleter final : public Completer {
 public:
  // The engine must outlive it.
  explicit EngineCompleter(Engine& engine, double read_bandwidth = 0)
      : engine_(engine), text_(engine), read_bandwidth_(read_bandwidth) {}
  // Owns the engine.
  explicit EngineCompleter(std::unique_ptr<Engine> engine, double read_bandwidth = 0)
      : owned_(std::move(engine)), engine_(*owned_), text_(engine_), read_bandwidth_(read_bandwidth) {}

  RequestId submit(Request request, Engine::Callback callback) override;
  void cancel(RequestId id) override;
  std::vector<AdapterInfo> adapters() const override;
  void add_adapter(const AdapterOption& adapter) override;
  void remove_adapter(std::string_view name) override;
  const ModelInfo& info() const override;
  EngineStats stats() const override;
  EngineSnapshot snapshot() const override;
  Explanation explain(const ExplainRequest& request) const override;
  double read_bandwidth() const override { return read_bandwidth_; }
  double measure_multiply_rate() const override;
  const ServedText& text() const override { return text_; }

 private:
  const std::unique_ptr<Engine> owned_ = nullptr;  // null: another owns it
  Engine& engine_;
  EngineText text_;
  double read_bandwidth_;
};

}  // namespace quire
