#include "cuda/linear/embedding.h"

#include <algorithm>

#include "cuda/kernels/unpack.h"
#include "cuda/linear/linear.h"

namespace quire::cuda {
namespace {

// found: if not nullptr, `ids` are places there.
void launch_embedding(Stream& stream, const PackedMatrix& m, std::span<const int32_t> ids, const int32_t* found,
                      float scale, const Rows& x, bool accumulate) {
  EmbedRows kernel{.matrix = {.shape = weight_shape(stream, m),
                              .data = reinterpret_cast<const uint8_t*>(m.data),
                              .table = {},
                              .bits = code_bits(m.format.codes),
                              .zero = m.format.zero,
                              .codes = m.format.codes},
                   .ids = stream.place(ids),
                   .found = found,
                   .x = {x.data, x.stride},
                   .cols = m.cols,
                   .scale = scale,
                   .accumulate = accumulate ? 1 : 0};
  std::ranges::copy(m.format.table, kernel.matrix.table);
  stream.launch({.x = (m.cols + EmbedRows::kThreads - 1) / EmbedRows::kThreads,
                 .y = static_cast<int>(ids.size()),
                 .threads = EmbedRows::kThreads},
                kernel);
}

}  // namespace

void embed(Stream& stream, const PackedMatrix& matrix, std::span<const int32_t> ids, float scale, const Rows& x) {
  launch_embedding(stream, matrix, ids, nullptr, scale, x, false);
}

void embed_found(Stream& stream, const PackedMatrix& matrix, std::span<const int32_t> places, const int32_t* ids,
                 float scale, const Rows& x) {
  launch_embedding(stream, matrix, places, ids, scale, x, false);
}

void add_embeddings(Stream& stream, const PackedMatrix& matrix, std::span<const int32_t> ids, float scale,
                    const Rows& x) {
  launch_embedding(stream, matrix, ids, nullptr, scale, x, true);
}

}  // namespace quire::cuda
