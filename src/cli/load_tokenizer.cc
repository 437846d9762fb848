#include "cli/load_tokenizer.h"

#include <filesystem>

#include "base/error.h"
#include "base/gunzip.h"
#include "base/mapped_file.h"
#include "format/gguf.h"
#include "model/gguf_vocabulary.h"
#include "model/registry.h"

namespace quire {
namespace {

std::string read_maybe_packed(const std::filesystem::path& path) {
  const MappedFile file(path);
  if (is_gzip(file.bytes())) return gunzip(file.bytes(), path.string());
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// Reads a GGUF file, a tokenizer.json (.gz), or a folder with a tokenizer.json (.gz).
Tokenizer load_file(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  if (fs::is_directory(path)) {
    for (const char* name : {"tokenizer.json", "tokenizer.json.gz"}) {
      if (fs::exists(path / name)) return load_file(path / name);
    }
    throw not_found("{} has no tokenizer.json", path.string());
  }
  if (path.extension() == ".gguf") return gguf_tokenizer(Gguf::open(path));
  const fs::path config = path.parent_path() / "tokenizer_config.json";
  return Tokenizer::from_hf_json(read_maybe_packed(path), path.string(),
                                 fs::exists(config) ? read_text_file(config) : std::string());
}

}  // namespace

Tokenizer load_tokenizer(const std::string& file, const std::string& model) {
  return load_file(file.empty() ? resolve_model(model) : std::filesystem::path(file));
}

}  // namespace quire
