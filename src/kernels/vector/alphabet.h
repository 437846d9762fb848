// The alphabet of the instruction set for which the including file is compiled: the only header by which the texts of this
// folder know a machine.
//
// An alphabet has registers of kWidth float, int32 or byte lanes, panels of 16 lanes, and what packed codes need. Its types
// and functions are declared in kernels/x86/vector.h and kernels/x86/codes.h, with what each means.
#pragma once

#if defined(__AVX2__)
#include "kernels/x86/codes.h"
#include "kernels/x86/vector.h"
#else
#error "no alphabet for these compiler flags (CMakeLists.txt); an alphabet for another instruction set is included here"
#endif
