// links: quantize
// Any bytes give an Error, or an importance matrix whose numbers a search for codes can use.
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "quantize/importance_matrix.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const quire::ImportanceMatrix matrix =
        quire::parse_importance_matrix({reinterpret_cast<const std::byte*>(data), size}, "fuzz.imatrix");
    if (matrix.entries.empty() || matrix.chunks < 0 || matrix.chunk_size < 0) __builtin_trap();
    for (const auto& [name, entry] : matrix.entries) {
      if (entry.counts.empty() || entry.sums.size() % entry.counts.size() != 0) __builtin_trap();
      const auto means = quire::ImportanceMatrix::mean_squares(entry);
      if (means.size() != entry.sums.size()) __builtin_trap();
      for (const float mean : means) {
        if (!std::isfinite(mean) || mean < 0) __builtin_trap();
      }
    }
  } catch (const quire::Error&) {
  }
  return 0;
}
