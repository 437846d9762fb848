// A model as golden tests load it.
#pragma once

#include <string>
#include <string_view>

#include "engine/single_sequence.h"
#include "golden/engine/expected_tensors.h"

namespace quire {

inline TokenIds ids(const Safetensors& file, const std::string& name) {
  if (const TensorView* t = file.find_tensor(name); t && t->type == TensorType::I32) return values<int32_t>(file, name);
  const auto wide = values<int64_t>(file, name);
  return {wide.begin(), wide.end()};
}

struct Loaded {
  LoadedModel model;
  Loaded(const std::string& path, std::string_view kernels, const std::string& activations,
         const std::string& kv_cache_dtype = "auto")
      : model(
            [&] {
              EngineOptions o;
              o.model = path;
              o.kernels = kernels;
              o.activations = activations;
              o.kv_cache_dtype = kv_cache_dtype;
              o.threads = 2;
              o.max_num_seqs = 1;
              o.max_num_batched_tokens = 128;
              o.max_model_len = 0;
              return o;
            }(),
            128) {}
};

}  // namespace quire
