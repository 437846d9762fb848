#include "hub/hub_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/error.h"
#include "base/files/file_lock.h"
#include "base/files/home_folder.h"
#include "base/files/mapped_file.h"
#include "base/files/whole_file.h"
#include "hub/download_source.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolderPrefix = "models--";

fs::path folder_in_environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value ? fs::path(value) : fs::path();
}

std::string folder_name(const std::string& repo) {
  std::string name(kFolderPrefix);
  for (const char c : repo) name += c == '/' ? "--" : std::string(1, c);
  return name;
}

// The names in a folder; none if there is no such folder.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  std::ranges::sort(names);
  return names;
}

void remove_if_empty(const fs::path& folder) {
  std::error_code not_empty;
  fs::remove(folder, not_empty);
}

}  // namespace

void create_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw no_resource("the folder {} cannot be created: {}; HF_HOME names another place for downloads", folder.string(),
                      error.message());
}

fs::path hub_cache_folder() {
  for (const char* variable : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const fs::path folder = folder_in_environment(variable); !folder.empty()) return folder;
  }
  if (const fs::path home = folder_in_environment("HF_HOME"); !home.empty()) return home / "hub";
  if (const fs::path cache = folder_in_environment("XDG_CACHE_HOME"); !cache.empty()) return cache / "huggingface/hub";
  const fs::path home = home_folder();
  return home.empty() ? home : home / ".cache/huggingface/hub";
}

std::vector<std::string> cached_repos(const fs::path& cache) {
  std::vector<std::string> repos;
  for (const std::string& name : names_in(cache)) {
    if (!name.starts_with(kFolderPrefix)) continue;
    std::string repo = name.substr(kFolderPrefix.size());
    if (const size_t dashes = repo.find("--"); dashes != repo.npos) repo.replace(dashes, 2, "/");
    if (folder_name(repo) == name) repos.push_back(std::move(repo));
  }
  return repos;
}

CachedRepo::CachedRepo(fs::path cache, const std::string& repo)
    : cache_(std::move(cache)), folder_(cache_ / folder_name(repo)) {}

fs::path CachedRepo::lock_file(const std::string& etag) const {
  return cache_ / ".locks" / folder_.filename() / (etag + ".lock");
}

std::optional<std::string> CachedRepo::commit_of(const std::string& revision) const {
  if (is_hex(revision, 40)) return revision;
  const fs::path ref = folder_ / "refs" / revision;
  std::error_code ignored;
  if (!fs::is_regular_file(ref, ignored)) return std::nullopt;
  std::string commit = read_text_file(ref, 1024);
  commit.erase(commit.find_last_not_of(" \r\n") + 1);
  return is_hex(commit, 40) ? std::optional(commit) : std::nullopt;
}

std::vector<std::string> CachedRepo::commits() const {
  std::vector<std::string> commits = names_in(folder_ / "snapshots");
  std::erase_if(commits, [](const std::string& name) { return !is_hex(name, 40); });
  return commits;
}

std::vector<RepoFile> CachedRepo::files(const std::string& commit) const {
  std::vector<RepoFile> files;
  const fs::path root = snapshot(commit);
  std::error_code error;
  for (fs::recursive_directory_iterator at(root, error), end; !error && at != end; at.increment(error)) {
    std::error_code missing;
    if (!fs::is_regular_file(at->path(), missing)) continue;  // follows the link
    const uint64_t size = fs::file_size(at->path(), missing);
    if (!missing) files.push_back({.path = at->path().lexically_relative(root).string(), .size = size});
  }
  std::ranges::sort(files, {}, &RepoFile::path);
  return files;
}

void CachedRepo::link(const std::string& commit, const std::string& path, const std::string& etag) const {
  const fs::path file = snapshot(commit) / path;
  create_folder(file.parent_path());
  const fs::path target = blob(etag).lexically_relative(file.parent_path());
  std::error_code error;
  if (fs::is_symlink(file, error) && fs::read_symlink(file, error) == target) return;
  // Renamed into place, so that another program always finds the old link or the new one.
  const fs::path fresh = file.string() + ".link-" + std::to_string(::getpid());
  fs::remove(fresh, error);
  fs::create_symlink(target, fresh, error);
  if (!error) fs::rename(fresh, file, error);
  if (error) throw no_resource("the link {} cannot be created: {}", file.string(), error.message());
}

void CachedRepo::set_commit(const std::string& revision, const std::string& commit) const {
  if (revision == commit) return;
  const fs::path ref = folder_ / "refs" / revision;
  create_folder(ref.parent_path());
  if (commit_of(revision) != commit) write_whole_file(ref, commit);
}

std::vector<std::string> CachedRepo::blobs_in_use() const {
  std::vector<std::string> blobs;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder_ / "snapshots", error), end; !error && at != end;
       at.increment(error)) {
    std::error_code none;
    if (at->is_symlink(none)) blobs.push_back(fs::read_symlink(at->path(), none).filename().string());
  }
  return blobs;
}

uint64_t CachedRepo::remove(const std::string& commit, const std::vector<RepoFile>& files) const {
  std::set<std::string> candidates;
  std::vector<std::unique_ptr<FileLock>> locks;
  std::error_code ignored;
  uint64_t freed = 0;
  for (const RepoFile& file : files) {
    const fs::path link = snapshot(commit) / file.path;
    if (!fs::is_symlink(link, ignored)) {
      freed += file.size;  // where links were not possible, the snapshot has the content itself
      continue;
    }
    const std::string etag = fs::read_symlink(link, ignored).filename().string();
    if (!is_plain_file_name(etag) || !candidates.insert(etag).second) continue;
    create_folder(lock_file(etag).parent_path());
    locks.push_back(FileLock::try_take(lock_file(etag)));
    if (!locks.back())
      throw no_resource("{} is being downloaded by another program; nothing was removed", link.string());
  }
  for (const RepoFile& file : files) {
    const fs::path link = snapshot(commit) / file.path;
    fs::remove(link, ignored);
    for (fs::path folder = link.parent_path(); folder != folder_; folder = folder.parent_path())
      remove_if_empty(folder);
  }
  for (const std::string& etag : blobs_in_use()) candidates.erase(etag);
  for (const std::string& etag : candidates) {
    const uint64_t size = fs::file_size(blob(etag), ignored);
    if (fs::remove(blob(etag), ignored)) freed += size;
    fs::remove(lock_file(etag), ignored);
  }
  if (!commits().empty()) return freed;
  // The last snapshot is gone. What is left is what downloads did not finish, and what names commits that are gone.
  if (fs::exists(folder_ / "blobs", ignored)) {
    for (const std::string& name : names_in(folder_ / "blobs")) {
      const std::string etag = name.substr(0, name.find('.'));
      const bool is_idle = fs::exists(lock_file(etag), ignored) ? FileLock::try_take(lock_file(etag)) != nullptr : true;
      if (!is_idle && files.empty())
        throw no_resource("a file of {} is being downloaded by another program; nothing was removed", folder_.string());
      if (!is_idle) return freed;
      if (name.ends_with(".incomplete")) freed += fs::file_size(folder_ / "blobs" / name, ignored);
    }
  }
  locks.clear();
  fs::remove_all(folder_, ignored);
  fs::remove_all(cache_ / ".locks" / folder_.filename(), ignored);
  return freed;
}

}  // namespace quire
