// Chooses kernels of linears by measuring them on the device, with a model's weights.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "cuda/device.h"
#include "cuda/linear/linear_variant.h"
#include "ops/backend.h"

namespace quire::cuda {

// As Backend::tune(), for 1, 2, 4, .. rows, as long as the inputs and the results take at most a quarter of a GiB each. Fills the
// table, and returns the kinds that `known` lacked. A kernel replaces the usual one if it takes 3 % less time and its results have
// the same bits. If they have other bits, Quire has an error: the choice is followed by the kernel's name. Throws Error (kResource):
// memory is short.
Backend::KernelChoices measure_variants(Device& device, VariantTable& table,
                                        std::span<const TunedProjection> projections, Activations activations, int rows,
                                        const Backend::KernelChoices& known,
                                        const std::function<void(size_t, size_t)>& report);

}  // namespace quire::cuda
