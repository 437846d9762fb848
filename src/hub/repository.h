// What a repository of the Hugging Face hub contains, as its API says: GET /api/models/ORG/REPO/revision/REV?blobs=true
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct RepoFile {
  std::string path;   // inside the repository (is_path_inside)
  uint64_t size = 0;  // bytes; 0: the hub does not say
};

struct Repository {
  std::string id;      // "ORG/REPO"; another name than the one asked for if the repository was renamed
  std::string commit;  // 40 hexadecimal digits
  std::vector<RepoFile> files;
};

// Throws Error naming `name` for a reply that is not JSON or lacks what is needed, and for a file whose path leaves the
// repository.
Repository parse_repository(std::string_view json, const std::string& name);

}  // namespace quire
