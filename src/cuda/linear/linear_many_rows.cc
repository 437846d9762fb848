#include "cuda/linear/linear_many_rows.h"

#include "cuda/linear/linear_fp8.h"
#include "cuda/linear/linear_int8.h"

namespace quire::cuda {
namespace {

// With fewer rows the kernels for decoding are faster (docs/cuda.md).
constexpr int kLeastRows = 33;

// All ranges then begin at an even block.
bool has_even_ranges(int blocks) { return blocks >= 128 || blocks % (2 * kSplits) == 0; }

}  // namespace

bool takes_many_rows(const DeviceFacts& facts, const LaunchKind& kind, int rows) {
  if (kind.inputs == Activations::kFp8) return true;
  if (facts.major != 9 || rows < kLeastRows) return false;
  if (kind.inputs == Activations::kInt8Row) return true;
  if (kind.inputs != Activations::kBf16 || !has_even_ranges(kind.blocks)) return false;
  return !kind.halves || has_many_rows_of_halves(kind.codes);
}

void launch_many_rows(Stream& stream, Codes codes, const LinearLaunch& l) {
  if (l.form == Activations::kFp8) return launch_fp8(stream, l);
  if (l.form == Activations::kInt8Row) return launch_many_int8_rows(stream, l);
  with_codes(codes, [&]<Codes kCodes>() { launch_many_rows<kCodes>(stream, l); });
}

}  // namespace quire::cuda
