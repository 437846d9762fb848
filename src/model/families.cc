#include "model/families.h"

#include "base/error.h"

namespace quire {
namespace {

constexpr const Family* kFamilies[] = {&kLlama, &kMistral, &kQwen2};

}  // namespace

const Family& find_family(const Checkpoint& checkpoint) {
  const bool gguf = checkpoint.gguf() != nullptr;
  std::string wanted, known;
  if (gguf) {
    wanted = checkpoint.gguf()->get<std::string>("general.architecture");
  } else {
    const auto names = checkpoint.hf()->config.get<std::vector<std::string>>("architectures");
    if (names.empty()) throw invalid("{}: architectures is empty", checkpoint.file());
    wanted = names.front();
  }
  for (const Family* family : kFamilies) {
    const std::string_view name = gguf ? family->gguf_architecture : family->hf_architecture;
    if (name == wanted) return *family;
    if (known.find(name) == std::string::npos) known += (known.empty() ? "" : ", ") + std::string(name);
  }
  throw unsupported("{}: architecture '{}' is not supported; supported: {}", checkpoint.file(), wanted, known);
}

ModelConfig read_model_config(const Checkpoint& checkpoint) {
  const Family& family = find_family(checkpoint);
  ModelConfig config = checkpoint.gguf() ? family.from_gguf(*checkpoint.gguf()) : family.from_hf(*checkpoint.hf());
  validate(config, checkpoint.file());
  return config;
}

}  // namespace quire
