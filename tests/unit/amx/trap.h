// AMX on machines without it: a handler of SIGILL that executes, in software, the tile instruction that the CPU
// refused. So the native kernels run as they were compiled: their encodings, addresses, configurations and register
// numbers.
#pragma once

namespace quire::testing {

// Installs the handler for the whole process. It works in every thread, each with its own tiles. What the hardware
// would refuse (#UD, #GP) it reports on stderr, and ends the process with the signal that Linux would have sent.
// Instructions that are not AMX end the process as ever. Needs AVX-512.
void trap_amx();

}  // namespace quire::testing
