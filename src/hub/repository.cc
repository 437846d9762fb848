#include "hub/repository.h"

#include <limits>

#include "base/error.h"
#include "base/text/quote.h"
#include "hub/download_source.h"
#include "json/field.h"

namespace quire {

Repository parse_repository(std::string_view json, const std::string& name) {
  constexpr size_t kMostFiles = 100'000;
  const JsonField reply = JsonField::parse(json, "the hub's reply about " + name);
  Repository repository;
  repository.id = reply.get_or<std::string>("id", name);
  repository.commit = reply.get<std::string>("sha");
  if (!is_hex(repository.commit, 40)) throw reply.at("sha").error("is not a commit");
  for (const JsonField& file : reply.at("siblings").elements(kMostFiles)) {
    RepoFile entry{.path = file.get<std::string>("rfilename")};
    if (!is_path_inside(entry.path))
      throw invalid("{}: the path {} leads out of the repository; nothing was downloaded", name, quote(entry.path));
    if (file.has("size"))
      entry.size = static_cast<uint64_t>(file.at("size").integer(0, std::numeric_limits<int64_t>::max()));
    repository.files.push_back(std::move(entry));
  }
  return repository;
}

}  // namespace quire
