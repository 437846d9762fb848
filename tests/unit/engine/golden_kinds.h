// Golden models, one for each kind of layer.
#pragma once

#include <string>

#include "base/error.h"
#include "model/families.h"
#include "paths.h"

namespace quire::testing {

inline constexpr const char* kGoldenKinds[] = {
    "mistral",             // sliding windows
    "gemma2",              // some windows, soft caps, norms after the blocks
    "gemma3_text",         // two ropes
    "gemma3n_text",        // several residual streams
    "gemma4_text",         // shared caches, per-layer embeddings
    "gpt_oss",             // sinks, experts with biases
    "deepseek_v3",         // latent attention, experts in groups
    "glm4_moe",            // shared experts
    "olmoe",               // clipped queries, keys and values
    "cohere_qk_norm",      // parallel blocks
    "gpt2",                // learned positions
    "exaone4",             // layers without positions
    "ministral3",          // queries scaled by position
    "qwen3_next",          // gated delta rule
    "qwen3_5_moe_nested",  // the same with experts in every layer
    "lfm2",                // short convolutions
    "granitemoehybrid",    // Mamba 2
    "hunyuan",             // norms of heads after rope
    "bloom",               // ALiBi
    "nemotron_h_moe",      // experts without gates
    "gemma4_moe",          // experts with norms of their own
    "phimoe",              // experts weighed among those that are near
    "falcon_h1",           // two mixers in a layer
};

inline std::string golden_kind(const std::string& name) { return (golden_dir() / "models" / name).string(); }

// Whether this version of Quire knows the model's family.
inline bool is_known(const std::string& path) {
  try {
    find_family(Checkpoint::open(path));
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::kUnsupported) return false;
    throw;
  }
  return true;
}

}  // namespace quire::testing
