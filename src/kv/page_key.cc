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

PageKey root_key(std::string_view model_and_layout, std::string_view salt) {
  const uint64_t length = model_and_layout.size();  // so that ("ab", "c") is not ("a", "bc")
  return Hash()
      .add(&length, sizeof length)
      .add(model_and_layout.data(), model_and_layout.size())
      .add(salt.data(), salt.size())
      .key();
}

PageKey chain(PageKey parent, std::span<const TokenId> tokens) {
  return Hash().add(&parent, sizeof parent).add(tokens.data(), tokens.size_bytes()).key();
}

}  // namespace quire
