// Mistral 7B: Llama with a sliding window in every layer. Its GGUF files say "llama".

#include "model/families.h"

namespace quire {
namespace {

ModelConfig from_hf(const HfConfig& hf) {
  ModelConfig c = read_llama_hf(hf);
  c.architecture = "mistral";
  const bool says = hf.config.json().contains("sliding_window");  // null: none; transformers takes 4096 without the key
  for (int& window : c.windows) window = hf.config.get_or<int>("sliding_window", says ? 0 : 4096);
  return c;
}

}  // namespace

const Family kMistral = {"MistralForCausalLM", "llama", from_hf, read_llama_gguf, &kLlamaHfNames, &kLlamaGgufNames};

}  // namespace quire
