// Operations on rows of activations: what ops/backend.h says of them. Each is one launch. Rows lie in memory of the device.
#pragma once

#include <cstdint>
#include <span>

#include "cuda/stream.h"
#include "ops/rows.h"

namespace quire::cuda {

void normalize(Stream& stream, const Rows& x, const NormView& norm, const Target& target, int rows);
void normalize(Stream& stream, const Rows& x, const HeadNorm& norm, const Target& target, int rows);
void add(Stream& stream, const Rows& x, float scale, const Rows& to, int rows);
void add_gated(Stream& stream, const Rows& x, const Rows& gate, float scale, const Rows& to, int rows);
void scale(Stream& stream, const Rows& x, float by, int rows);
void cut_below(Stream& stream, const Rows& x, float deviations, int rows);
void match_magnitude(Stream& stream, const Rows& x, const Rows& like, int rows);
// x: none of them is the target.
void combine(Stream& stream, std::span<const Rows> x, const Rows& coefficients, const Target& target, int rows);
void tanh(Stream& stream, const Rows& x, int rows);
void soft_cap(Stream& stream, const Rows& x, float cap, int rows);
void copy(Stream& stream, const Rows& x, const Rows& to, int rows);
void gather(Stream& stream, const Rows& x, std::span<const int32_t> rows, const Rows& to);
void copy_heads(Stream& stream, const Rows& x, const HeadColumns& columns, const Rows& y, int rows);
void multiply_gate(Stream& stream, const Rows& y, const Rows& gate, Nonlinearity f, int rows);
// to [from.size()] = from, in order with the launches. Much at once waits for them.
void upload(Stream& stream, std::span<const float> from, float* to);

}  // namespace quire::cuda
