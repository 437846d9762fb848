#include "cuda/linear/linear_many_rows.h"

namespace quire::cuda {
namespace {

// With fewer rows the kernels for decoding are faster (docs/cuda.md).
constexpr int kLeastRows = 33;

// All ranges then begin at an even block.
bool has_even_ranges(int blocks) { return blocks >= 128 || blocks % (2 * kSplits) == 0; }

}  // namespace

bool takes_many_rows(const DeviceFacts& facts, const PackedMatrix& matrix, Activations form, int rows) {
  if (facts.major != 9 || form != Activations::kBf16 || rows < kLeastRows || !has_even_ranges(matrix.blocks()))
    return false;
  const Codes codes = matrix.format.codes;
  const bool halves = matrix.format.group == kBlockInputs / 2;
  return !halves || codes == Codes::kU2 || codes == Codes::kU3 || codes == Codes::kU6 || codes == Codes::kFloat4;
}

void launch_many_rows(Stream& stream, Codes codes, const LinearLaunch& l) {
  with_codes(codes, [&]<Codes kCodes>() { launch_many_rows<kCodes>(stream, l); });
}

}  // namespace quire::cuda
