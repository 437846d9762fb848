// A last look at the machine before a kernel set is chosen.
#pragma once

#include "kernels/kernels.h"

namespace quire {

// Whether the set's linears give the reference's bits on this very machine: some instructions' order of additions is
// known from measuring a few processors rather than from a promise (VDPBF16PS, TDPBF16PS), and hypervisors emulate what
// they like. Takes well under a millisecond; the tests compare everything.
bool gives_defined_bits(const KernelSet& kernels);

}  // namespace quire
