// Ranks that are processes, started together by mpirun.
#pragma once

#include <memory>

#include "ops/process_group.h"

namespace quire {

// Whether the environment says that mpirun or a launcher like it has started several processes, of which this is one.
bool is_one_of_several();

// Connects this process to the others that were started with it, by MPI. Throws Error: the library libquire_mpi.so is missing
// or of another version, MPI cannot start, this process is alone, or another one runs another program.
std::shared_ptr<ProcessGroup> open_processes();

}  // namespace quire
