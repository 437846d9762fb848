// Checks the processor before a kernel set is chosen.
#pragma once

#include "kernels/kernels.h"

namespace quire {

// Whether the set's linears give the reference's bits on this machine. The order of additions of VDPBF16PS and
// TDPBF16PS is known from measuring a few processors, not from a specification, and a hypervisor may emulate them
// differently. Takes well under a millisecond; the tests compare everything.
bool gives_defined_bits(const KernelSet& kernels);

}  // namespace quire
