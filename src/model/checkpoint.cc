#include "model/checkpoint.h"

#include "base/error.h"

namespace quire {

Checkpoint Checkpoint::open(const std::filesystem::path& path) {
  Checkpoint c;
  c.path_ = path;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    if (!std::filesystem::exists(path / "config.json", ignored))
      throw not_found("{} is not a model directory (no config.json); pass a .gguf file", path.string());
    c.hf_ = HfConfig::open(path);
    c.safetensors_ = Safetensors::open(path);
    for (const SentenceModule& module : c.hf_->modules) {
      if (module.kind == "Dense" && !module.folder.empty())
        c.safetensors_->append(Safetensors::open(path / module.folder), module.folder + ".");
    }
  } else {
    c.gguf_ = Gguf::open(path);
  }
  return c;
}

}  // namespace quire
