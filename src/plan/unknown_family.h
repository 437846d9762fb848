// The shape of a model whose family Quire does not know, where its settings tell it: a decoder of layers that are all
// alike, with attention and an MLP or experts. That is enough to plan, and not enough to run.
#pragma once

#include <string>
#include <vector>

#include "format/hf_config.h"
#include "model/checkpoint.h"
#include "model/config.h"

namespace quire {

struct UnknownFamily {
  ModelConfig config;                    // validated
  std::vector<std::string> assumptions;  // sentences
};

// Throws Error naming the setting: it is missing, out of range, or says that the model is not of that kind (recurrent
// layers, latent attention, an encoder).
UnknownFamily read_unknown_family(const Checkpoint& checkpoint);
UnknownFamily read_unknown_family(const HfConfig& files, const std::string& file);

}  // namespace quire
