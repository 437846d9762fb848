#include "cli/lab/scratch_model.h"

#include <cstdint>
#include <string>

namespace quire {

std::filesystem::path make_scratch_model(const ScratchFolder& folder, const SynthShape& shape, TensorType type) {
  constexpr uint64_t kWeightSeed = 1;
  const std::filesystem::path file = folder.path() / (std::string(shape.name) + ".gguf");
  write_synthetic_model(file, shape, type, kWeightSeed);
  return file;
}

}  // namespace quire
