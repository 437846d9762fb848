// Embeddings: rows of packed matrices of any format, with the bits of ops/cpu.
#pragma once

#include <cstdint>
#include <span>

#include "cuda/stream.h"
#include "kernels/packed.h"
#include "ops/rows.h"

namespace quire::cuda {

// As Operations::embed() and Operations::add_embeddings(), which here need no scratch. Rows with a negative id are left as they
// are.
void embed(Stream& stream, const PackedMatrix& matrix, std::span<const int32_t> ids, float scale, const Rows& x);
// places: where each row's id is among `ids`, which are in memory of the device.
void embed_found(Stream& stream, const PackedMatrix& matrix, std::span<const int32_t> places, const int32_t* ids,
                 float scale, const Rows& x);
void add_embeddings(Stream& stream, const PackedMatrix& matrix, std::span<const int32_t> ids, float scale,
                    const Rows& x);

}  // namespace quire::cuda
