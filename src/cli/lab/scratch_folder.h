// A folder for the models that an experiment makes.
#pragma once

#include <filesystem>

#include "base/tensor_type.h"
#include "model/synth.h"

namespace quire {

// In the system's temporary folder ($TMPDIR); removed with all that is in it when the object dies.
class ScratchFolder {
 public:
  ScratchFolder();  // throws Error: the temporary folder cannot be written
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // A synthetic model in it, NAME.gguf.
  std::filesystem::path make_model(const SynthShape& shape, TensorType type) const;

 private:
  std::filesystem::path path_;
};

}  // namespace quire
