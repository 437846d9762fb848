// InternLM 2: Llama under other names, with queries, keys and values in one tensor.

#include "model/families.h"

namespace quire::internlm {
namespace {

constexpr TensorName kHf[] = {{Tensor::kEmbedding, "model.tok_embeddings.weight"},
                              {Tensor::kOutput, "output.weight"},
                              {Tensor::kMixerNorm, "model.layers.{}.attention_norm.weight"},
                              {Tensor::kFfnNorm, "model.layers.{}.ffn_norm.weight"},
                              {Tensor::kQ, "model.layers.{}.attention.wqkv.weight"},
                              {Tensor::kK, "model.layers.{}.attention.wqkv.weight"},
                              {Tensor::kV, "model.layers.{}.attention.wqkv.weight"},
                              {Tensor::kO, "model.layers.{}.attention.wo.weight"},
                              {Tensor::kGate, "model.layers.{}.feed_forward.w1.weight"},
                              {Tensor::kUp, "model.layers.{}.feed_forward.w3.weight"},
                              {Tensor::kDown, "model.layers.{}.feed_forward.w2.weight"}};

ModelConfig from_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  set_rope_kind(c, RopeKind::kNeighbours);
  return c;
}

constexpr std::string_view kNames[] = {"InternLM2ForCausalLM"};

}  // namespace

extern const Family kInternLm2 = {"internlm2", kNames, "internlm2", read_base, from_gguf, {kHf, place_grouped}};

}  // namespace quire::internlm
