// Manifests of Ollama registries: which blobs make up a model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct OllamaLayer {
  std::string kind;    // "model", "template", "params", ...: the media type's last part
  std::string digest;  // SHA-256, 64 hexadecimal digits
  uint64_t size = 0;   // bytes

  std::string blob() const { return "sha256-" + digest; }  // its file in Ollama's store
};

struct OllamaManifest {
  OllamaLayer model;                // the GGUF file
  std::vector<OllamaLayer> others;  // Ollama's store has them too, Quire does not read them
};

// Throws Error naming `name` for a manifest that is malformed, has not exactly one model, or has an adapter, without which
// the model would be another one.
OllamaManifest parse_ollama_manifest(std::string_view json, const std::string& name);

}  // namespace quire
