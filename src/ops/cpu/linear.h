// Linear layers over a team: rounding of inputs, and products with packed weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "ops/cpu/compute.h"
#include "ops/linear.h"
#include "ops/low_rank.h"
#include "ops/operation_limits.h"

namespace quire {

struct QuantizeArgs;  // kernels/kernels.h
struct LinearArgs;

// Memory for the inputs of some linears at a time.
class InputMemory {
 public:
  using Need = OperationLimits::InputRows;
  InputMemory() = default;
  // memory: bytes(needs, forms), 64-byte aligned. Any one of the needs fits.
  InputMemory(std::byte* memory, std::span<const Need> needs, const InputForms& forms);
  static size_t bytes(std::span<const Need> needs, const InputForms& forms);

  // As Operations::prepare().
  Inputs prepare(const Compute& compute, const Rows& x, const NormView& norm, int rows,
                 std::initializer_list<const Linear*> linears, std::optional<Activations> as = {}) const;
  // Row i is row sources[i] of x (`gathered`: row i), or nothing if sources[i] is negative. It is for the linear that
  // linear_of(i) gives; rows of one kRowGroup have one, and all have one form.
  Inputs prepare_gathered(const Compute& compute, const Rows& x, std::span<const int32_t> sources, bool gathered,
                          const std::function<const Linear&(int row)>& linear_of) const;
  // The rows that a product got from its first matrix, as its second matrix reads them: in float32, fold by fold, each fold in
  // its columns. taken: bytes that earlier products took.
  Inputs prepare_low_rank(const Compute& compute, const Rows& low, int rows, const LowRank& change,
                          size_t& taken) const;
  // Inputs of one linear per head: at(h) are those of head h.
  struct HeadInputs {
    Inputs first;
    int padded_rows;
    Inputs at(int head) const { return first.from_row(head * padded_rows); }
  };
  HeadInputs prepare_heads(const Compute& compute, const HeadProjections& all, int rows) const;
  // Rows that inputs of this many heads take.
  static int head_rows(int heads, int rows) { return heads * static_cast<int>(padded_rows(rows)); }

 private:
  struct Regions {
    size_t int8 = 0, floats = 0, int8_rows = 0, transformed = 0, scratch = 0;  // bytes; `transformed`: of each
  };
  static Regions regions_of(std::span<const Need> needs, const InputForms& forms);
  // Where the next inputs go. ranks: whether all ranks write there together.
  const InputMemory& memory_for(const Compute& compute, bool ranks) const;
  std::byte* region(Activations form) const;

  std::byte *int8_ = nullptr, *floats_ = nullptr, *int8_rows_ = nullptr, *transformed_ = nullptr;
  float *normed_ = nullptr, *changed_ = nullptr;  // [rows] of the widest
  size_t transformed_bytes_ = 0;
};

// Independent projections of the same rows, as one loop: at most kMostTogether.
void project(const Compute& compute, const Inputs& x, std::span<const Projection> list, int rows);

// A projection of some of the rows: those of one expert, or of one head. row_begin: a multiple of kRowGroup.
struct ProjectionPart {
  Inputs x;
  Projection projection;
  int row_begin, row_end;
};
struct LinearTile {
  int part, panel_begin, panel_end, row_begin, row_end;
};
// Independent projections of rows of their own, and memory for their lists that is reused.
struct ProjectionParts {
  std::vector<ProjectionPart> parts;
  std::vector<LinearTile> tiles;
};
// All parts as one loop. shared: of each part, only the panels that are this rank's share; the caller gathers y.
void project_parts(const Compute& compute, ProjectionParts& parts, bool shared = false);
// As Operations::project_heads().
void project_heads(const Compute& compute, const InputMemory& inputs, ProjectionParts& parts,
                   const HeadProjections& heads, int rows);
// What they come down to, for measurements.
void linears(const Compute& compute, std::span<const LinearArgs> list, int rows);
void quantize_rows(const Compute& compute, const QuantizeArgs& args, int rows);

}  // namespace quire
