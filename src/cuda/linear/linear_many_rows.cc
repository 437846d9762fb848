#include "cuda/linear/linear_many_rows.h"

namespace quire::cuda {
namespace {

// With fewer rows the kernels for decoding are faster (docs/cuda.md).
constexpr int kLeastRows = 33;

// All ranges then begin at an even block.
bool has_even_ranges(int blocks) { return blocks >= 128 || blocks % (2 * kSplits) == 0; }

}  // namespace

bool takes_many_rows(const DeviceFacts& facts, const PackedMatrix& matrix, int terms, int rows) {
  if (facts.major != 9 || terms != 1 || rows < kLeastRows || !has_even_ranges(matrix.blocks())) return false;
  const Codes codes = matrix.format.codes;
  const bool halves = matrix.format.group == kBlockInputs / 2;
  return !halves || codes == Codes::kU2 || codes == Codes::kU3 || codes == Codes::kU6 || codes == Codes::kFloat4;
}

void launch_many_rows(Stream& stream, Codes codes, const LinearLaunch& l) {
  switch (codes) {
    case Codes::kU2:
      return launch_many_rows<Codes::kU2>(stream, l);
    case Codes::kU3:
      return launch_many_rows<Codes::kU3>(stream, l);
    case Codes::kU4:
      return launch_many_rows<Codes::kU4>(stream, l);
    case Codes::kU5:
      return launch_many_rows<Codes::kU5>(stream, l);
    case Codes::kU6:
      return launch_many_rows<Codes::kU6>(stream, l);
    case Codes::kI8:
      return launch_many_rows<Codes::kI8>(stream, l);
    case Codes::kTable4:
      return launch_many_rows<Codes::kTable4>(stream, l);
    case Codes::kFloat4:
      return launch_many_rows<Codes::kFloat4>(stream, l);
    case Codes::kE4M3:
      return launch_many_rows<Codes::kE4M3>(stream, l);
    case Codes::kBf16:
      return launch_many_rows<Codes::kBf16>(stream, l);
    case Codes::kF16:
      return launch_many_rows<Codes::kF16>(stream, l);
    case Codes::kF32:
      return launch_many_rows<Codes::kF32>(stream, l);
  }
}

}  // namespace quire::cuda
