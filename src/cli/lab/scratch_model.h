// Synthetic models that an experiment makes for itself.
#pragma once

#include <filesystem>

#include "base/files/scratch_folder.h"
#include "base/tensor_type.h"
#include "model/synth.h"

namespace quire {

// Writes a model of random weights to the folder and returns its path: the shape's name, with .gguf.
std::filesystem::path make_scratch_model(const ScratchFolder& folder, const SynthShape& shape, TensorType type);

}  // namespace quire
