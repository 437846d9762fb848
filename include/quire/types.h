// The numbers that must not be mixed up.
#pragma once

#include <cstdint>
#include <vector>

namespace quire {

using TokenId = int32_t;  // index into the vocabulary; negative means "none"
inline constexpr TokenId kNoToken = -1;

using TokenIds = std::vector<TokenId>;

}  // namespace quire
