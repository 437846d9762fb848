// Identifies a page's content: a hash of every token up to its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "quire/types.h"

namespace quire {

// XXH3-128 over a chain: two pages have the same key if they hold the same tokens after the same tokens, with the same
// model and layout, tenant and salt. The hash is fast, but not collision-resistant against attackers.
struct PageKey {
  uint64_t low = 0, high = 0;
  bool operator==(const PageKey&) const = default;
};

// The beginning of a chain. `model_and_layout`: everything that changes the bytes of a page (weights, layout of the
// cache, kernel definitions); `tenant`: a name that is the same after a restart; `salt`: the request's; `rope_variant`:
// the sequence's, because it changes the keys; `adapter`: identifies what changes the model's weights, likewise.
PageKey root_key(std::string_view model_and_layout, std::string_view tenant, std::string_view salt,
                 int rope_variant = 0, std::string_view adapter = {});

// The key of the page that holds `tokens` and follows the page (or root) `parent`.
PageKey chain(PageKey parent, std::span<const TokenId> tokens);

// What a page keeps, under keys of their own in a page store: the unit of a group of layers, and the parts of the
// checkpoint after the page.
PageKey unit_key(PageKey page, int group);
PageKey checkpoint_key(PageKey page, int part);

struct PageKeyHash {
  size_t operator()(const PageKey& key) const { return static_cast<size_t>(key.low); }  // already a hash
};

}  // namespace quire
