// The name of a page's content: a hash of every token up to its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "quire/types.h"

namespace quire {

// XXH3-128 over a chain: two pages have one key when they hold the same tokens after the same tokens, in the same
// layout of the same model, for the same tenant under the same salt. The hash is fast and not secret.
struct PageKey {
  uint64_t low = 0, high = 0;
  bool operator==(const PageKey&) const = default;
};

// Where a chain begins. `model_and_layout`: whatever changes the bytes of a page (weights, KV type, tokens a page,
// kernels' definition); `tenant`: a name that stays, so that its pages are found again after a restart; `salt`: the
// request's.
PageKey root_key(std::string_view model_and_layout, std::string_view tenant, std::string_view salt);

// The key of the page that holds `tokens` and follows the page (or root) `parent`.
PageKey chain(PageKey parent, std::span<const TokenId> tokens);

struct PageKeyHash {
  size_t operator()(const PageKey& key) const { return static_cast<size_t>(key.low); }  // a hash already
};

}  // namespace quire
