#include "cli/load_tokenizer.h"

#include <cstdio>
#include <filesystem>
#include <span>

#include "base/error.h"
#include "base/files/gunzip.h"
#include "base/files/mapped_file.h"
#include "format/gguf.h"
#include "model/gguf_vocabulary.h"
#include "model/registry.h"

namespace quire {
namespace {

std::string read_maybe_packed(const std::filesystem::path& path) {
  std::string text = read_text_file(path);
  const auto bytes = std::as_bytes(std::span(text));
  return is_gzip(bytes) ? gunzip(bytes, path.string()) : text;
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
  Tokenizer tokenizer = load_file(file.empty() ? resolve_model(model) : std::filesystem::path(file));
  for (const std::string& warning : tokenizer.warnings()) std::fprintf(stderr, "quire: warning: %s\n", warning.c_str());
  return tokenizer;
}

}  // namespace quire
