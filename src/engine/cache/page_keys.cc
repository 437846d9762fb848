#include "engine/cache/page_keys.h"

#include <utility>
#include <vector>

#include "kernels/types.h"

namespace quire {

std::span<const TokenId> page_tokens(const Sequence& s, int page) {
  return std::span(s.tokens).subspan(static_cast<size_t>(page) * kPageTokens, kPageTokens);
}

const PageKey& page_key(Sequence& s, int page) {
  std::vector<PageKey>& keys = s.cached.keys;
  while (std::cmp_less_equal(keys.size(), page)) {
    keys.push_back(chain(keys.empty() ? s.cached.root : keys.back(), page_tokens(s, static_cast<int>(keys.size()))));
  }
  return keys[static_cast<size_t>(page)];
}

}  // namespace quire
