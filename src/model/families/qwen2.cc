// Qwen2 and Qwen2.5: Llama with biases on queries, keys and values, optionally a sliding window in the upper layers.

#include "base/error.h"
#include "model/families.h"

namespace quire {
namespace {

ModelConfig from_hf(const HfConfig& hf) {
  ModelConfig c = read_llama_hf(hf);
  c.architecture = "qwen2";
  const JsonField& j = hf.config;
  if (!j.get_or<bool>("use_sliding_window", false)) return c;
  const int window = sliding_window(hf);
  const auto types = j.optional<std::vector<std::string>>("layer_types");
  if (types && types->size() != c.windows.size())
    throw invalid("{}: {} layer types for {} layers", j.where("layer_types"), types->size(), c.layers);
  const int first = j.get_or<int>("max_window_layers", 28);
  for (size_t i = 0; i < c.windows.size(); ++i) {
    const bool slides = types ? (*types)[i] == "sliding_attention" : static_cast<int>(i) >= first;
    c.windows[i] = slides ? window : 0;
  }
  return c;
}

ModelConfig from_gguf(const Gguf& gguf) {
  ModelConfig c = read_llama_gguf(gguf);
  c.rope.kind = RopeKind::kHalves;  // llama.cpp permutes queries and keys for the llama architecture only
  return c;
}

}  // namespace

const Family kQwen2 = {"Qwen2ForCausalLM", "qwen2", from_hf, from_gguf, &kLlamaHfNames, &kLlamaGgufNames};

}  // namespace quire
