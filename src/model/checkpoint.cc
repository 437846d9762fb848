#include "model/checkpoint.h"

#include "base/error.h"

namespace quire {

Checkpoint Checkpoint::open(const std::filesystem::path& path) {
  Checkpoint c;
  c.path_ = path;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    c.hf_ = HfConfig::open(path);
    c.safetensors_ = Safetensors::open(path);
  } else {
    c.gguf_ = Gguf::open(path);
  }
  return c;
}

}  // namespace quire
