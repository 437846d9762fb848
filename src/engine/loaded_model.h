// A model that is ready to run.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/drafting/draft_model.h"
#include "engine/drafting/text_drafters.h"
#include "engine/runtime.h"
#include "model/decoder.h"
#include "ops/cache_memory.h"
#include "quire/engine.h"

namespace quire {

// Owns threads, weights, KV cache and activations. Commands that need no scheduler (verify, perplexity, bench) use it
// directly.
struct LoadedModel {
  // Throws Error if an option is invalid, the model cannot be loaded, or memory is short. max_logits: rows with logits
  // per step; 0: one per sequence and some for the log-probabilities of prompts.
  explicit LoadedModel(EngineOptions given, int max_logits = 0);

  // As given, but what a bidirectional model cannot use is off: prompts in chunks, and the prefix cache.
  EngineOptions options;
  Runtime runtime;
  Model target;  // of options.model; the draft model belongs to its drafter
  std::optional<ChatTemplate> chat_template;
  ModelInfo info;
  std::string identity;        // everything its results depend on besides its input; empty unless an option needs it
  std::string cache_identity;  // likewise of the bytes of a cached unit
  std::unique_ptr<TextDrafters> text_drafters;  // nullptr: no speculation
  std::unique_ptr<DraftModel> draft_model;      // nullptr: no drafter computes
  std::unique_ptr<CacheMemory> kv;
  std::unique_ptr<Decoder> decoder;

 private:
  void load(const Checkpoint& checkpoint);
  void load_drafters(const Checkpoint& checkpoint);
  void describe(const Checkpoint& checkpoint);
  DecoderLimits size_steps(int max_logits) const;
  void size_memory(const CacheLayout& layout, const DecoderLimits& limits, size_t memory_before);
};

}  // namespace quire
