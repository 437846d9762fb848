#include "cuda/sample.h"

#include <cassert>
#include <utility>

#include "cuda/kernels/sample.h"
#include "cuda/row_arguments.h"

namespace quire::cuda {
namespace {

template <bool kOfColumns>
int parts_of(int size) {
  constexpr int kPart = BestOfParts<kOfColumns>::kPart;
  return (size + kPart - 1) / kPart;
}

}  // namespace

size_t top_bytes(int cols, int count, int rows) {
  const int parts = parts_of<true>(cols);
  if (parts == 1) return 0;
  // The candidates of the columns' parts, and of those of candidates, in turn.
  const int first = parts * count, second = parts_of<false>(first) * count;
  return static_cast<size_t>(rows) * static_cast<size_t>(first + second) * sizeof(int32_t);
}

void top(Stream& stream, const Rows& x, int count, int rows, std::byte* scratch, int32_t* columns, float* values) {
  // With fewer candidates in a part than twice the wanted ones, parts of candidates would not become fewer.
  assert(count >= 1 && count <= x.cols && count * 2 <= BestOfParts<false>::kPart && is_aligned(x));
  int parts = parts_of<true>(x.cols), size = x.cols;
  auto* to = reinterpret_cast<int32_t*>(scratch);
  auto* spare = to + static_cast<size_t>(rows) * static_cast<size_t>(parts * count);
  const auto launch = [&]<bool kOfColumns>(const int32_t* candidates) {
    using Kernel = BestOfParts<kOfColumns>;
    stream.launch({.x = rows, .y = parts, .threads = Kernel::kThreads, .shared_bytes = Kernel::kSharedBytes},
                  Kernel{.x = readable(x),
                         .candidates = Global<const int32_t>(candidates),
                         .columns = Global<int32_t>(parts == 1 ? columns : to),
                         .values = Global<float>(parts == 1 ? values : nullptr),
                         .size = size,
                         .count = count});
  };
  launch.template operator()<true>(nullptr);
  while (parts > 1) {
    size = parts * count;
    parts = parts_of<false>(size);
    const int32_t* const candidates = to;
    std::swap(to, spare);
    launch.template operator()<false>(candidates);
  }
}

}  // namespace quire::cuda
