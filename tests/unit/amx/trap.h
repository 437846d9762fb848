// AMX on machines without it: a handler of SIGILL that executes, in software, the tile instruction that the CPU
// refused. So the native kernels run as they were compiled: their encodings, addresses, configurations and register
// numbers.
#pragma once

namespace quire::testing {

// Installs the handler for the whole process; each thread has its own tiles. A fault of the hardware (#UD, #GP) is
// reported on stderr and ends the process with the signal that Linux would have sent. Other illegal instructions end
// the process as usual. Needs AVX-512.
void trap_amx();

}  // namespace quire::testing
