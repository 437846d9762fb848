#include "kv/page_key.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace quire {
namespace {

class Hash {
 public:
  Hash() { XXH3_128bits_reset(&state_); }
  Hash& add(const void* data, size_t bytes) {
    if (bytes > 0) XXH3_128bits_update(&state_, data, bytes);
    return *this;
  }
  PageKey key() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(&state_);
    return {hash.low64, hash.high64};
  }

 private:
  XXH3_state_t state_;
};

// A chain hashes 16 bytes and whole tokens, so the tag's length keeps these keys apart from those of chains.
PageKey part_key(PageKey page, std::string_view tag, int part) {
  return Hash().add(&page, sizeof page).add(tag.data(), tag.size()).add(&part, sizeof part).key();
}

}  // namespace

PageKey root_key(std::string_view model_and_layout, std::string_view tenant, std::string_view salt, int rope_variant,
                 std::string_view adapter) {
  Hash hash;
  for (const std::string_view part : {model_and_layout, tenant, salt}) {
    const uint64_t length = part.size();  // so that ("ab", "c") is not ("a", "bc")
    hash.add(&length, sizeof length).add(part.data(), part.size());
  }
  if (rope_variant != 0) hash.add(&rope_variant, sizeof rope_variant);
  if (!adapter.empty()) hash.add("adapter", 7).add(adapter.data(), adapter.size());  // longer than a variant
  return hash.key();
}

PageKey chain(PageKey parent, std::span<const TokenId> tokens) {
  return Hash().add(&parent, sizeof parent).add(tokens.data(), tokens.size_bytes()).key();
}

PageKey unit_key(PageKey page, int group) { return group == 0 ? page : part_key(page, "group", group); }
PageKey checkpoint_key(PageKey page, int part) { return part_key(page, "state", part); }

}  // namespace quire
