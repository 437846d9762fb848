// Prepared inputs: rows of activations as linears read them. Those of int8: cuda/kernels/int8/inputs.h, of FP8:
// cuda/kernels/fp8/inputs.h. The others:
//
// A prepared row of `cols` inputs, in blocks of 32 with zeros in place of inputs that the last has not:
//
//   bf16     [terms][32 * blocks]    kBf16: 1 term, the rounded input. kF32: 3 terms, whose sum is the input
//   float32  [2 * blocks]            the sums of inputs 0 .. 15 and 16 .. 31 of each block (kBf16: of the rounded ones)
//
// In a block, the number at 16 s + 8 h + 2 i + e (s, h, e in {0, 1}, i in 0 .. 3) is input 8 i + 2 (2 s + h) + e. Then the
// inputs that lane 4 g + i multiplies in the two steps of a block are those whose weights are in one 8-byte load
// (kernels/codes.h).
//
// Norms differ from those of ops/cpu in the order of their sums, and so in the last bits. Transforms have their bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>

#include "cuda/kernels/fp8/inputs.h"
#include "cuda/kernels/inputs.h"
#include "cuda/kernels/int8/inputs.h"
#include "cuda/kernels/normed_eights.h"
#include "cuda/kernels/products.h"
#include "cuda/stream.h"
#include "ops/linear.h"
#include "ops/operation_limits.h"

namespace quire::cuda {

// Whether inputs of linears can have this form.
constexpr bool has_input_form(Activations form) { return form != Activations::kInt8x2; }
// Of kF32 and kBf16.
constexpr int input_terms(Activations form) { return form == Activations::kF32 ? 3 : 1; }
constexpr size_t prepared_block_bytes(Activations form) {
  switch (form) {
    case Activations::kInt8:
      return kInt8Block + kInt8InfoBytes;
    case Activations::kFp8:
      return kFp8Block;
    case Activations::kInt8Row:  // with its outliers, and their mask
      return kInt8Block + kBlockInputs * sizeof(uint16_t) + sizeof(uint32_t);
    default:
      return static_cast<size_t>(input_terms(form)) * kPreparedBlock + 2 * sizeof(float);
  }
}
// Bytes from a prepared row to the next, a multiple of 16.
constexpr size_t prepared_stride(Activations form, int cols) {
  const auto blocks = static_cast<size_t>((cols + kBlockInputs - 1) / kBlockInputs);
  const size_t of_row = form == Activations::kInt8Row ? kInt8InfoBytes : form == Activations::kFp8 ? kFp8InfoBytes : 0;
  const size_t bytes = blocks * prepared_block_bytes(form) + of_row;
  return (bytes + 15) / 16 * 16;
}

// Inputs that are prepared when a launch needs them prepared: some kernels prepare rows themselves.
struct LateInputs {
  static constexpr int kMostRows = 8;

  Inputs::Entry to{};  // data is nullptr: there are none
  Rows x;
  NormView norm;
  int count = 0;  // of rows

  NormedRows rows() const;  // for kernels that prepare them
  // Prepares them now.
  void launch(Stream& stream);
};

// Memory for the prepared inputs of some linears at a time, and transforms that have been uploaded.
class InputBuffers {
 public:
  using Need = OperationLimits::InputRows;
  // Any one of the needs fits. mode: the activations of linears. The device must outlive it. Throws Error (kResource).
  InputBuffers(Device& device, std::span<const Need> needs, const InputForms& forms);
  ~InputBuffers();
  InputBuffers(const InputBuffers&) = delete;
  InputBuffers& operator=(const InputBuffers&) = delete;
  static size_t bytes(std::span<const Need> needs, const InputForms& forms);

  // As Operations::prepare(). All forms must be has_input_form(); throws Error (kUnsupported) for a rotation of more inputs
  // than the device has shared memory for. may_be_late: few rows may become late() instead. Until project() has read them, x must
  // stay as it is.
  Inputs prepare(Stream& stream, Activations mode, const Rows& x, const NormView& norm, int rows,
                 std::initializer_list<const Linear*> linears, std::optional<Activations> as = {},
                 bool may_be_late = false);
  LateInputs& late() { return late_; }

  // `gathered` rows for the experts, or other parts, whose linears have `form`: as GatheredRows says. most: rows there may be.
  // any: one of the linears, which all have its threshold. rotated, by_matrix: whether any of the parts' transforms is a
  // rotation, and one with a matrix.
  Inputs prepare_gathered(Stream& stream, Activations form, const Linear& any, const Rows& x,
                          const GatheredRows& gathered, int most, bool rotated, bool by_matrix);

  // Inputs of one linear for each head: those of head h begin at row h * padded_rows.
  struct HeadInputs {
    Inputs first;
    int padded_rows;
  };
  HeadInputs prepare_heads(Stream& stream, Activations mode, const HeadProjections& heads, int rows);
  static int head_rows(int heads, int rows) { return heads * static_cast<int>(padded_rows(rows)); }

  // A transform's vectors on the device, uploaded when it is first seen; of null: one that does nothing.
  TransformView view(const std::shared_ptr<const InputTransform>& transform);

 private:
  struct Uploaded {
    std::shared_ptr<const InputTransform> transform;  // so that its address stays its own
    TransformView view;
    std::byte* memory;
  };
  struct Regions {
    size_t bf16 = 0, floats = 0, int8 = 0, int8_rows = 0, transformed = 0;  // bytes; `transformed`: of each
  };
  static Regions regions_of(std::span<const Need> needs, const InputForms& forms);
  std::byte* region(Activations form) const;

  Device& device_;
  std::byte* memory_ = nullptr;
  std::byte *bf16_ = nullptr, *floats_ = nullptr, *int8_ = nullptr, *int8_rows_ = nullptr, *transformed_ = nullptr;
  size_t transformed_bytes_ = 0;
  std::unordered_map<const InputTransform*, Uploaded> transforms_;
  LateInputs late_;
};

}  // namespace quire::cuda
