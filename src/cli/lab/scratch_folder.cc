#include "cli/lab/scratch_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "base/error.h"

namespace quire {
namespace {

constexpr uint64_t kWeightSeed = 1;

}  // namespace

ScratchFolder::ScratchFolder() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (error) throw invalid("there is no temporary folder: {}; set TMPDIR", error.message());
  std::string name = (folder / "quire-lab-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    throw invalid("no folder for models can be made in {}: {}; set TMPDIR", folder.string(), std::strerror(errno));
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::filesystem::path ScratchFolder::make_model(const SynthShape& shape, TensorType type) const {
  const std::filesystem::path file = path_ / (std::string(shape.name) + ".gguf");
  write_synthetic_model(file, shape, type, kWeightSeed);
  return file;
}

}  // namespace quire
