// Models by name: from the caches if they are there, or else downloaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hub/download_source.h"

namespace quire {

struct DownloadStatus {
  enum class Stage : uint8_t { kWaiting, kDownloading, kChecking };  // kWaiting: another program downloads the file
  Stage stage = Stage::kDownloading;
  std::string file;                        // that is being downloaded
  std::string digest = {};                 // its SHA-256, or git's SHA-1; empty: not known
  uint64_t file_done = 0, file_total = 0;  // bytes of that file
  uint64_t done = 0, total = 0;            // bytes of all files
};

struct DownloadOptions {
  bool offline = false;  // never connect; also by HF_HUB_OFFLINE=1
  bool update = false;   // ask the server even if the model is there
  int connections = 4;   // for each file
  // Both may throw, which ends the download; what came stays and is continued later.
  std::function<void(const DownloadStatus&)> status = [](const DownloadStatus&) {};
  std::function<void()> check = [] {};                                       // called ten times a second
  std::function<void(const std::string&)> note = [](const std::string&) {};  // what the user should know, a line each
};

// A model on this machine.
struct StoredModel {
  std::string name;            // as for -m: "hf:ORG/REPO:Q4_K_M"
  std::filesystem::path path;  // of the file or folder to open
  std::string revision = {};   // a commit, or the digest of a manifest
  uint64_t bytes = 0;
  std::vector<std::filesystem::path> files = {};
};

// The model in the caches, without any connection. Hub models: the commit that was downloaded last.
std::optional<StoredModel> find_stored(const DownloadSource& source);

// The same, or downloads it. Files appear under their names only once they are complete and their hashes are right. Throws
// Error for all that can go wrong, with what to do.
StoredModel find_or_download(const DownloadSource& source, const DownloadOptions& options);

// Told a file of weights, and that its first `there` bytes are downloaded; the others are zeros. Returns how many are needed: no
// more if they are enough. May throw.
using NeededHead = std::function<uint64_t(const std::filesystem::path& file, uint64_t there)>;

// Downloads into the folder what describes a model of the hub: its files of weights as sparse files of their whole size, of
// which only the beginning is there, and of a directory the JSON files except the tokenizer's. Returns the file or folder to
// open. Throws Error.
std::filesystem::path download_heads(const HubReference& model, const std::filesystem::path& folder,
                                     const NeededHead& needed, const DownloadOptions& options);

// All models of the hub's, Ollama's and our own cache that Quire could open.
std::vector<StoredModel> stored_models();

// What remove_stored() would remove: the files, and their bytes. Those that other models use are not among them. A hub model
// without a file or quantization means all that is there of the repository, in all its revisions. nullopt: nothing is
// there. Throws Error if it is not clear what is meant.
std::optional<StoredModel> removable(const DownloadSource& source);
// Returns the bytes freed. Throws Error (kResource) if another program is downloading it.
uint64_t remove_stored(const DownloadSource& source);

}  // namespace quire
