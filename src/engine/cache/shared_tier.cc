#include "engine/cache/shared_tier.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "base/text/percent.h"
#include "kv/disk_tier.h"
#include "redis/redis_tier.h"

namespace quire {

SharedCache parse_shared_cache(std::string_view url) {
  constexpr std::string_view kFile = "file://";
  if (is_redis_url(url)) return parse_redis_url(url);
  if (!url.starts_with(kFile))
    throw unsupported("a shared cache is file:///FOLDER, redis://HOST:PORT/DATABASE or rediss://HOST:PORT/DATABASE");
  SharedFolder folder{percent_decoded(url.substr(kFile.size()))};
  if (!folder.path.starts_with('/'))
    throw invalid("a shared folder is named by its whole path: file:///FOLDER, with three slashes");
  return folder;
}

std::unique_ptr<PageTier> open_shared_tier(const SharedCache& cache, size_t page_bytes, size_t limit_bytes,
                                           const std::string& identity, Warn warn) {
  if (const RedisUrl* const server = std::get_if<RedisUrl>(&cache)) {
    return std::make_unique<RedisTier>(
        RedisTierOptions{.server = *server, .page_bytes = page_bytes, .identity = identity, .warn = std::move(warn)});
  }
  const std::string& path = std::get<SharedFolder>(cache).path;
  if (limit_bytes / 2 < page_file_bytes(page_bytes)) {
    warn(fmt::format(
        "shared folder {} is not used: --cache-size is {} bytes, and two pages of {} bytes must fit; raise it", path,
        limit_bytes, page_bytes));
    return nullptr;
  }
  return std::make_unique<DiskTier>(DiskTierOptions{.directory = path,
                                                    .limit_bytes = limit_bytes,
                                                    .page_bytes = page_bytes,
                                                    .identity = identity,
                                                    .warn = std::move(warn),
                                                    .shared = true});
}

}  // namespace quire
