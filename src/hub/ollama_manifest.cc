#include "hub/ollama_manifest.h"

#include <limits>
#include <utility>

#include "base/error.h"
#include "base/text/quote.h"
#include "hub/download_source.h"
#include "json/field.h"

namespace quire {
namespace {

OllamaLayer read_layer(const JsonField& field) {
  constexpr std::string_view kAlgorithm = "sha256:";
  OllamaLayer layer;
  const auto type = field.get<std::string>("mediaType");
  layer.kind = type.substr(type.rfind('.') + 1);
  const auto digest = field.get<std::string>("digest");
  if (!digest.starts_with(kAlgorithm) || !is_hex(std::string_view(digest).substr(kAlgorithm.size()), 64))
    throw field.at("digest").error("{} is not a SHA-256", quote(digest));
  layer.digest = digest.substr(kAlgorithm.size());
  layer.size = static_cast<uint64_t>(field.at("size").integer(0, std::numeric_limits<int64_t>::max()));
  return layer;
}

}  // namespace

OllamaManifest parse_ollama_manifest(std::string_view json, const std::string& name) {
  constexpr size_t kMostLayers = 1000;
  const JsonField reply = JsonField::parse(json, "the manifest of " + name);
  OllamaManifest manifest;
  std::vector<OllamaLayer> models;
  for (const JsonField& field : reply.at("layers").elements(kMostLayers)) {
    OllamaLayer layer = read_layer(field);
    if (layer.kind == "adapter")
      throw unsupported("{} has an adapter, which Quire does not apply; merge it into the model first", name);
    (layer.kind == "model" ? models : manifest.others).push_back(std::move(layer));
  }
  if (models.size() != 1)
    throw unsupported("{} has {} model files; Quire loads models of one GGUF file", name, models.size());
  manifest.model = std::move(models.front());
  if (const auto config = reply.find("config")) {
    manifest.others.push_back(read_layer(*config));
    manifest.others.back().kind = "config";
  }
  return manifest;
}

}  // namespace quire
