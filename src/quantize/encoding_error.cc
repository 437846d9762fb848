#include "quantize/encoding_error.h"

#include <cmath>
#include <utility>

#include "quant/blocks.h"

namespace quire {

RowEncoding EncodingError::watch(RowEncoding encoding, TensorType type) {
  for (Sums& sums : threads_) sums.lost = sums.size = 0;
  const int rows_together = encoding.rows_together;
  return {[this, type, encode = std::move(encoding.encode)](size_t matrix, std::span<float> rows,
                                                            std::span<std::byte> out, int thread) {
            Sums& sums = threads_[static_cast<size_t>(thread)];
            sums.before.assign(rows.begin(), rows.end());  // encoding may overwrite the rows
            const EncodeResult result = encode(matrix, rows, out, thread);
            if (result != EncodeResult::kDone) return result;
            sums.after.resize(rows.size());
            dequantize(type, out, sums.after);
            for (size_t i = 0; i < rows.size(); ++i) {
              const double weight = sums.before[i], lost = weight - sums.after[i];
              sums.lost += lost * lost;
              sums.size += weight * weight;
            }
            return result;
          },
          rows_together};
}

double EncodingError::relative() const {
  double lost = 0, size = 0;
  for (const Sums& sums : threads_) {
    lost += sums.lost;
    size += sums.size;
  }
  return size > 0 ? std::sqrt(lost / size) : 0;
}

}  // namespace quire
