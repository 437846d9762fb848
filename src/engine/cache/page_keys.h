// The keys of a sequence's pages, by which equal beginnings are found.
#pragma once

#include <span>

#include "engine/sequence.h"
#include "kv/page_key.h"

namespace quire {

// The tokens of a full page.
std::span<const TokenId> page_tokens(const Sequence& s, int page);
// The key of a full page: of its tokens and of all before them. Computed once.
const PageKey& page_key(Sequence& s, int page);

}  // namespace quire
