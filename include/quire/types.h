// Ids. Types that must not be mixed up do not convert into each other.
#pragma once

#include <cstdint>
#include <vector>

namespace quire {

// An index into the vocabulary. A plain integer: token ids index logits and embedding rows everywhere, so the compiler
// does not keep them apart from other integers.
using TokenId = int32_t;
inline constexpr TokenId kNoToken = -1;

using TokenIds = std::vector<TokenId>;

// Returned by Engine::submit, ascending in the order of submission.
enum class RequestId : uint64_t {};

}  // namespace quire
