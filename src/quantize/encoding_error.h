// What encoding loses of a tensor's weights, measured while it is written.
#pragma once

#include <cstddef>
#include <vector>

#include "base/tensor_type.h"
#include "model/convert/tensor_writer.h"

namespace quire {

// Watches the encoding of one tensor after the other.
class EncodingError {
 public:
  // threads: of the team that encodes.
  explicit EncodingError(int threads) : threads_(static_cast<size_t>(threads)) {}

  // Does what `encoding` does, and compares its result with the rows. Valid until the next call, which begins another
  // tensor. The object must outlive it.
  RowEncoding watch(RowEncoding encoding, TensorType type);
  // The root of the squared error as a share of the squared weights: ||W - Q|| / ||W||, of the rows since watch(); 0 if
  // there were none. Sums are in float64 by threads, so the last digits depend on their number.
  double relative() const;

 private:
  struct Sums {
    double lost = 0, size = 0;
    std::vector<float> before, after;
  };
  std::vector<Sums> threads_;
};

}  // namespace quire
