// Error feedback for the types of GGUF files: GPTQ (Frantar et al., arXiv 2210.17323) on grids of blocks.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/tensor_type.h"
#include "quant/encode.h"
#include "quant/panel_format.h"
#include "quantize/solve/input_algebra.h"

namespace quire {

// Quantizes rows of one matrix, a chunk of 256 inputs after the other. The chunk's scales and minima are those that lose
// least of its weights, each error counted by 1 / U_ii^2: what is left of it once later weights have made up for it. Then
// codes are chosen input by input, and each error moves to the inputs after it; with types whose codes are vectors (IQ1 to
// IQ3), vector by vector.
class BlockFeedback {
 public:
  // factor: in the model's order, of the matrix's inputs. It must outlive the object. type: of blocks, with a writer.
  BlockFeedback(TensorType type, const InverseFactor& factor);

  // rows: [n, cols]; changed. out: their blocks. Not thread-safe.
  EncodeResult encode(std::span<float> rows, std::span<std::byte> out);

 private:
  void round_codes(const float* upper, const CodedRow& parts, std::span<float> weights, std::span<float> errors) const;

  const TensorType type_;
  const InverseFactor& factor_;
  const std::vector<uint8_t> codes_;  // that a weight may have
  std::vector<float> counts_;         // [cols]: what the square of an error counts
  std::vector<float> errors_;         // [rows, chunk]: divided by their pivots
};

}  // namespace quire
