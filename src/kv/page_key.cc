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

}  // namespace

PageKey root_key(std::string_view model_and_layout, std::string_view tenant, std::string_view salt) {
  Hash hash;
  for (const std::string_view part : {model_and_layout, tenant, salt}) {
    const uint64_t length = part.size();  // so that ("ab", "c") is not ("a", "bc")
    hash.add(&length, sizeof length).add(part.data(), part.size());
  }
  return hash.key();
}

PageKey chain(PageKey parent, std::span<const TokenId> tokens) {
  return Hash().add(&parent, sizeof parent).add(tokens.data(), tokens.size_bytes()).key();
}

}  // namespace quire
