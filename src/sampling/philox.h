// Stateless random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace quire {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

// 128 random bits, determined by counter and key.
constexpr PhiloxCounter philox4x32(PhiloxCounter c, PhiloxKey k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
    k[0] += 0x9E3779B9;  // the golden ratio
    k[1] += 0xBB67AE85;  // sqrt(3) - 1
  }
  return c;
}

// What a draw decides. The draws of one do not change those of another.
// kDraft: a token from a drafter's distribution. kAccept, kResidual: whether the draft stays, and what replaces it
// (speculate/rejection.h).
enum class Draw : uint32_t { kToken, kXtc, kDraft, kAccept, kResidual };

// Uniform in [0, 1), a multiple of 2^-53: the draw of choice `choice` at absolute position `position`.
constexpr double uniform_at(uint64_t seed, uint32_t choice, uint64_t position, Draw draw = Draw::kToken) {
  const PhiloxCounter bits = philox4x32(
      {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), choice, static_cast<uint32_t>(draw)},
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t wide = (uint64_t{bits[1]} << 32) | bits[0];
  return static_cast<double>(wide >> 11) * 0x1p-53;
}

}  // namespace quire
