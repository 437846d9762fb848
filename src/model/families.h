// Model families: how a checkpoint's names and settings map to ModelConfig. One file a family in families/, and a row
// in families.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "model/checkpoint.h"
#include "model/config.h"

namespace quire {

// Names of tensors in one kind of file; {} stands for the layer. A bias has its weight's name with .bias for .weight.
struct TensorNames {
  std::string_view embedding, output_norm, output;
  std::string_view attention_norm, q, k, v, o;
  std::string_view ffn_norm, gate, up, down;
  std::span<const std::string_view> ignored;  // tensors that hold nothing the model needs
};

// The names that the whole Llama family uses.
extern const TensorNames kLlamaHfNames, kLlamaGgufNames;

struct Family {
  std::string_view hf_architecture;    // config.json: architectures[0]
  std::string_view gguf_architecture;  // general.architecture; several families may share one
  ModelConfig (*from_hf)(const HfConfig& config);
  ModelConfig (*from_gguf)(const Gguf& gguf);
  const TensorNames* hf_names;
  const TensorNames* gguf_names;
};

extern const Family kLlama, kMistral, kQwen2;

// The family of a checkpoint. Throws Error (kUnsupported) that lists the known ones.
const Family& find_family(const Checkpoint& checkpoint);

// The validated configuration of a checkpoint. Throws Error: unknown family, or settings that are out of range.
ModelConfig read_model_config(const Checkpoint& checkpoint);

// What Llama-like configurations have in common: for the families' own readers.
ModelConfig read_llama_hf(const HfConfig& config);
ModelConfig read_llama_gguf(const Gguf& gguf);
int sliding_window(const HfConfig& config);  // tokens; 0: none, which null says, too

}  // namespace quire
