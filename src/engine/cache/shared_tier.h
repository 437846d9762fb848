// The tier of the page store that replicas share (--shared-cache, docs/shared-cache.md).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "kv/page_store.h"
#include "redis/redis_url.h"

namespace quire {

struct SharedFolder {
  std::string path;
};
using SharedCache = std::variant<SharedFolder, RedisUrl>;

// file:///FOLDER (percent-encoded), or a Redis URL. Throws Error, whose message has nothing of a password.
SharedCache parse_shared_cache(std::string_view url);

// `limit_bytes`: of a folder; servers have limits of their own. nullptr: it cannot hold two pages, as it has warned. Throws
// Error if a folder can be neither opened nor created; a server that does not answer is a warning.
std::unique_ptr<PageTier> open_shared_tier(const SharedCache& cache, size_t page_bytes, size_t limit_bytes,
                                           const std::string& identity, Warn warn);

}  // namespace quire
