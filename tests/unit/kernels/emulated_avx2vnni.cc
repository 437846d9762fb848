// The kernel set "avx2vnni" with its one instruction emulated: the same source, on any machine with AVX2.

#include <immintrin.h>

#include "unit/kernels/testable_kernels.h"

namespace {

// VPDPBUSD: to each lane of `sum`, adds the products of its four unsigned bytes in `w` with the signed ones in `x`.
[[gnu::always_inline]] inline __m256i dot_bytes(__m256i sum, __m256i w, __m256i x) {
  const __m256i w_even = _mm256_and_si256(w, _mm256_set1_epi16(0xff)), w_odd = _mm256_srli_epi16(w, 8);
  const __m256i x_even = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8), x_odd = _mm256_srai_epi16(x, 8);
  const __m256i products = _mm256_add_epi32(_mm256_madd_epi16(w_even, x_even), _mm256_madd_epi16(w_odd, x_odd));
  return _mm256_add_epi32(sum, products);
}

}  // namespace

#define QUIRE_ISA emulated_avx2vnni
#define QUIRE_DOT_BYTES dot_bytes

#include "kernels/x86/avx2vnni_kernel_set.inc.h"

namespace quire::testing {

const KernelSet& emulated_avx2vnni_kernels() {
  static const KernelSet set = emulated_avx2vnni::vnni_kernels("emulated_avx2vnni");
  return set;
}

}  // namespace quire::testing
