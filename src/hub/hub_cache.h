// The cache of the Hugging Face hub's own client, so that no file is stored twice:
//
//   models--ORG--REPO/refs/main               the commit that the branch had when it was last downloaded
//   models--ORG--REPO/snapshots/COMMIT/FILE   a relative link to ../../blobs/ETAG
//   models--ORG--REPO/blobs/ETAG              the content; ETAG is its SHA-256, or of small files git's SHA-1
//   .locks/models--ORG--REPO/ETAG.lock        held with flock while the blob is downloaded
//
// A blob that is not complete is called ETAG.quire.incomplete. (That client's own ETAG.incomplete files have no holes.)
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hub/repository.h"

namespace quire {

// $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub. Empty without a home folder.
std::filesystem::path hub_cache_folder();

// One repository of the cache. Nothing is created until something is stored.
class CachedRepo {
 public:
  // repo: "ORG/REPO", as parse_download_source() accepts it.
  CachedRepo(std::filesystem::path cache, const std::string& repo);

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path blob(const std::string& etag) const { return folder_ / "blobs" / etag; }
  std::filesystem::path lock_file(const std::string& etag) const;
  std::filesystem::path snapshot(const std::string& commit) const { return folder_ / "snapshots" / commit; }

  // The commit of a branch or tag when it was last downloaded; a commit stands for itself.
  std::optional<std::string> commit_of(const std::string& revision) const;
  std::vector<std::string> commits() const;  // all snapshots
  // The files of a snapshot whose content is there, in order.
  std::vector<RepoFile> files(const std::string& commit) const;

  // Makes the snapshot's file a link to the blob.
  void link(const std::string& commit, const std::string& path, const std::string& etag) const;
  void set_commit(const std::string& revision, const std::string& commit) const;

  // Removes files of a snapshot, or all of it, then the blobs that no snapshot has any more, and the folders that are
  // empty. Returns the bytes freed. Throws Error (kResource) if another program is downloading one of the blobs.
  uint64_t remove(const std::string& commit, const std::vector<RepoFile>& files) const;

 private:
  std::vector<std::string> blobs_in_use() const;

  std::filesystem::path cache_, folder_;
};

// The repositories of the cache: "ORG/REPO".
std::vector<std::string> cached_repos(const std::filesystem::path& cache);

// Creates the folder and those above it. Throws Error that says why it cannot.
void create_folder(const std::filesystem::path& folder);

}  // namespace quire
