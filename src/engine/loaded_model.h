// A model ready to run, and the numbers that describe it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/team.h"
#include "kernels/kv_memory.h"
#include "model/config.h"
#include "model/decoder.h"
#include "model/model_text.h"
#include "model/weights.h"
#include "quire/engine.h"

namespace quire {

// Owns weights, KV cache, threads and activations. Built once from EngineOptions; commands that need no scheduler
// (verify, perplexity, bench) use it directly.
struct LoadedModel {
  // max_logits: rows of a step that may want logits; 0: max_num_seqs, one for each sequence, and some for the
  // log-probabilities of prompts.
  explicit LoadedModel(const EngineOptions& options, int max_logits = 0);

  ModelConfig config;
  ModelText text;
  std::optional<ChatTemplate> chat_template;
  Team team;
  Weights weights;
  ModelInfo info;
  std::string cache_identity;  // what the bytes of a KV page depend on beside its tokens; empty without a cache folder
  std::unique_ptr<KvMemory> kv;
  std::unique_ptr<Decoder> decoder;
};

}  // namespace quire
