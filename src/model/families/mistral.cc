// Mistral 7B: Llama with a sliding window in every layer. Its GGUF files say "llama".

#include "model/families.h"

namespace quire {
namespace {

ModelConfig from_hf(const HfConfig& hf) {
  ModelConfig c = read_llama_hf(hf);
  c.architecture = "mistral";
  c.windows.assign(c.windows.size(), sliding_window(hf));
  return c;
}

}  // namespace

const Family kMistral = {"MistralForCausalLM", "llama", from_hf, read_llama_gguf, &kLlamaHfNames, &kLlamaGgufNames};

}  // namespace quire
