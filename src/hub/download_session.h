// Downloads of one model: requests with the user's token, files with their hashes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hub/download_model.h"
#include "hub/http_request.h"
#include "hub/transfer.h"

namespace quire {

// A file to be stored.
struct WantedFile {
  std::string name;  // for the progress and messages
  RemoteFile remote;
  std::string digest;          // SHA-256 (64 digits), or git's SHA-1 of a blob (40); empty: not known
  std::filesystem::path to;    // the blob
  std::filesystem::path lock;  // its lock file
  bool replace = false;        // what has its name now, once it is complete
};

class DownloadSession {
 public:
  // model: names it in messages. Throws Error if connections are switched off. options must outlive the session.
  DownloadSession(std::string model, const DownloadOptions& options);

  HttpAccess& access() { return access_; }
  const std::string& model() const { return model_; }

  // Stores the files that are not there yet. Checks the space on the disk before it begins. folder: of all of them.
  // refuse: throws for an answer that refuses the download. Throws Error; a file whose hash is wrong is removed.
  void store(const std::vector<WantedFile>& files, const std::filesystem::path& folder, const RefusalHandler& refuse);

 private:
  void store_file(const WantedFile& file, const RefusalHandler& refuse);
  void show(DownloadStatus::Stage stage, const WantedFile& file, uint64_t done_of_file) const;

  std::string model_;
  const DownloadOptions& options_;
  HttpAccess access_;
  uint64_t done_ = 0, total_ = 0;  // bytes: of the files before this one, of all
};

// Whether the environment variable is 1, true, yes or on.
bool is_switched_on(const char* variable);

}  // namespace quire
