// Linears on the device: products of prepared inputs (cuda/linear/inputs.h) with packed weights of every format.
//
// A result has the bits that kernels/weights.h defines, whichever kernel computes it: they do not depend on the number of
// rows. It differs from that of ops/cpu in the order and rounding of sums alone; with int8 inputs it has the CPU's bits.
#pragma once

#include <span>

#include "cuda/kernels/linear.h"
#include "cuda/linear/inputs.h"
#include "cuda/linear/linear_launch.h"
#include "cuda/stream.h"
#include "ops/linear.h"

namespace quire::cuda {

// As Operations::project(). mode: the activations that x was prepared for. variant: for tests, which compare them; the usual one: what
// the stream's table says. late: nullptr: x is prepared.
void project(Stream& stream, const Inputs& x, std::span<const Projection> list, int rows, Activations mode,
             LinearVariant variant = {}, LateInputs* late = nullptr);
// As Operations::project_heads().
void project_heads(Stream& stream, InputBuffers& inputs, const HeadProjections& heads, int rows, Activations mode);

// For many parts with matrices of one shape, such as experts.
struct PartProjection {
  const PackedMatrix& like;   // any part's
  LinearParts parts;          // the matrices and rows of each
  int most_parts, most_rows;  // parts that can have rows, and rows of one part
  int usual_rows;             // of a part: what the launch is made for
  Rows y;
  bool gated = false;         // parts have `up`, of the same format
  bool gates_target = false;  // as Finish::gates_target
  Nonlinearity f = Nonlinearity::kNone;
  float alpha = 0, limit = 0;
};
// Whether products of warpgroups multiply parts of so many rows, which they do if the parts are not gated.
bool takes_many_part_rows(const DeviceFacts& facts, const PackedMatrix& like, Activations form, int usual_rows);
// PartMatrices::factor of a matrix.
float part_factor(const PackedMatrix& matrix);
void project_parts(Stream& stream, const PreparedRows& x, Activations form, const PartProjection& projection);

WeightShape weight_shape(Stream& stream, const PackedMatrix& matrix);

}  // namespace quire::cuda
