#include "model/checkpoint.h"

#include <algorithm>

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

bool Checkpoint::reads(const std::filesystem::path& file) const {
  const auto is_same = [&](const std::filesystem::path& other) {
    std::error_code missing;
    return std::filesystem::equivalent(file, other, missing);  // also by a link
  };
  if (std::ranges::any_of(mappings(), [&](const MappedFile& mapping) { return is_same(mapping.path()); })) return true;
  if (gguf_) return false;
  std::error_code ignored;
  for (std::filesystem::recursive_directory_iterator at(path_, ignored), end; !ignored && at != end;
       at.increment(ignored)) {
    if (is_same(at->path())) return true;
  }
  return false;
}

}  // namespace quire
