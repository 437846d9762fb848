#include "hub/ollama_models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/error.h"
#include "base/files/file_lock.h"
#include "base/files/home_folder.h"
#include "base/files/mapped_file.h"
#include "base/files/whole_file.h"
#include "hub/digest.h"
#include "hub/download_session.h"
#include "hub/http_url.h"
#include "hub/hub_cache.h"
#include "hub/ollama_manifest.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLargestManifest = size_t{4} << 20;

// Empty without a home folder.
fs::path ollama_store() {
  if (const char* folder = std::getenv("OLLAMA_MODELS"); folder && *folder) return folder;
  const fs::path home = home_folder();
  return home.empty() ? home : home / ".ollama/models";
}

fs::path manifest_file(const fs::path& store, const OllamaReference& model) {
  return store / "manifests" / model.host / model.name / model.tag;
}

fs::path blob_file(const fs::path& store, const OllamaLayer& layer) { return store / "blobs" / layer.blob(); }

std::optional<OllamaManifest> stored_manifest(const fs::path& store, const OllamaReference& model) {
  const fs::path file = manifest_file(store, model);
  std::error_code ignored;
  if (store.empty() || !fs::is_regular_file(file, ignored)) return std::nullopt;
  return parse_ollama_manifest(read_text_file(file, kLargestManifest), source_name(model));
}

std::optional<StoredModel> model_in_store(const fs::path& store, const OllamaReference& model,
                                          const OllamaManifest& manifest) {
  const fs::path blob = blob_file(store, manifest.model);
  std::error_code missing;
  const uint64_t size = fs::file_size(blob, missing);
  if (missing || size != manifest.model.size) return std::nullopt;
  return StoredModel{.name = source_name(model),
                     .path = blob,
                     .revision = manifest.model.digest,
                     .bytes = size,
                     .files = {manifest_file(store, model), blob}};
}

std::string registry_url(const OllamaReference& model) {
  // The scheme follows from the host: this machine's registries have no certificate.
  const std::string plain = "http://" + model.host;
  try {
    checked_origin(plain, is_switched_on("QUIRE_ALLOW_HTTP"));
    return fmt::format("{}/v2/{}", plain, model.name);
  } catch (const Error&) {
    return fmt::format("https://{}/v2/{}", model.host, model.name);
  }
}

// All names of the store: the files manifests/HOST/NAMESPACE/NAME/TAG.
std::vector<OllamaReference> names_in_store(const fs::path& store) {
  std::vector<OllamaReference> models;
  std::error_code error;
  const fs::path root = store / "manifests";
  for (fs::recursive_directory_iterator at(root, error), end; !error && at != end; at.increment(error)) {
    const fs::path relative = at->path().lexically_relative(root);
    if (at.depth() != 3 || std::distance(relative.begin(), relative.end()) != 4) continue;
    auto part = relative.begin();
    OllamaReference model{.host = (part++)->string(), .name = (part++)->string()};
    model.name += "/" + (part++)->string();
    model.tag = part->string();
    models.push_back(std::move(model));
  }
  return models;
}

}  // namespace

std::optional<StoredModel> find_ollama_model(const OllamaReference& model) {
  const fs::path store = ollama_store();
  const auto manifest = stored_manifest(store, model);
  return manifest ? model_in_store(store, model, *manifest) : std::nullopt;
}

StoredModel download_ollama_model(const OllamaReference& model, const DownloadOptions& options) {
  const std::string name = source_name(model);
  const fs::path store = ollama_store();
  if (store.empty()) throw not_found("there is no folder for {}, because HOME is unset; set OLLAMA_MODELS", name);
  DownloadSession session(name, options);
  const std::string url = registry_url(model);
  const RefusalHandler refuse = [&](const HttpReply& reply) {
    if (reply.status == 404)
      throw not_found("{}: the registry {} has no such model or tag; https://ollama.com/search lists models", name,
                      model.host);
    if (reply.status == 401 || reply.status == 403)
      throw not_found(
          "{}: the registry {} does not give it to everyone (HTTP {}); download it with `ollama pull`, and "
          "Quire finds it",
          name, model.host, reply.status);
    throw no_resource("{}: HTTP {} of {}", name, reply.status, shown_url(reply.url));
  };
  const HttpReply reply = http_get(session.access(), fmt::format("{}/manifests/{}", url, model.tag),
                                   "application/vnd.docker.distribution.manifest.v2+json", kLargestManifest);
  if (reply.status != 200) refuse(reply);
  const OllamaManifest manifest = parse_ollama_manifest(reply.body, name);

  std::vector<WantedFile> files;
  std::vector<std::string> unused;
  std::vector<OllamaLayer> layers = manifest.others;  // small ones first
  layers.push_back(manifest.model);
  for (const OllamaLayer& layer : layers) {
    if (layer.kind != "model" && layer.kind != "config" && layer.kind != "license") unused.push_back(layer.kind);
    files.push_back({.name = layer.kind,
                     .remote = {.url = fmt::format("{}/blobs/sha256:{}", url, layer.digest),
                                .etag = layer.digest,
                                .size = layer.size},
                     .digest = layer.digest,
                     .to = blob_file(store, layer),
                     .lock = store / "blobs" / (layer.blob() + ".quire.lock")});
  }
  session.store(files, store, refuse);
  std::error_code ignored;
  for (const WantedFile& file : files) fs::remove(file.lock, ignored);
  const fs::path file = manifest_file(store, model);
  create_folder(file.parent_path());
  write_whole_file(file, reply.body);
  if (!unused.empty())
    options.note(fmt::format("{}: Quire uses the model with its own chat template; it does not read Ollama's {}", name,
                             fmt::join(unused, ", ")));
  auto found = model_in_store(store, model, manifest);
  if (!found) throw no_resource("{} is gone from {} already", name, store.string());
  return std::move(*found);
}

std::vector<StoredModel> stored_ollama_models() {
  std::vector<StoredModel> models;
  const fs::path store = ollama_store();
  if (store.empty()) return models;
  for (const OllamaReference& model : names_in_store(store)) {
    try {
      const auto manifest = stored_manifest(store, model);
      if (auto found = manifest ? model_in_store(store, model, *manifest) : std::nullopt)
        models.push_back(std::move(*found));
    } catch (const Error&) {
      // Not a model that Quire could open.
    }
  }
  std::ranges::sort(models, {}, &StoredModel::name);
  return models;
}

uint64_t remove_ollama_model(const OllamaReference& model) {
  const fs::path store = ollama_store();
  const auto manifest = stored_manifest(store, model);
  if (!manifest) return 0;
  std::set<std::string> used;
  for (const OllamaReference& other : names_in_store(store)) {
    if (manifest_file(store, other) == manifest_file(store, model)) continue;
    try {
      const auto others = stored_manifest(store, other);
      used.insert(others->model.digest);
      for (const OllamaLayer& layer : others->others) used.insert(layer.digest);
    } catch (const Error& e) {
      // Its blobs are not known, so none can be removed safely.
      throw invalid("{}; nothing was removed, because it may use the same files. Remove it with `ollama rm`", e.what());
    }
  }
  std::error_code ignored;
  fs::remove(manifest_file(store, model), ignored);
  fs::remove(manifest_file(store, model).parent_path(), ignored);  // if it was the last tag
  uint64_t freed = 0;
  std::vector<OllamaLayer> layers = manifest->others;
  layers.push_back(manifest->model);
  for (const OllamaLayer& layer : layers) {
    if (used.contains(layer.digest)) continue;
    const uint64_t size = fs::file_size(blob_file(store, layer), ignored);
    if (fs::remove(blob_file(store, layer), ignored)) freed += size;
  }
  return freed;
}

}  // namespace quire
