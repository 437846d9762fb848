// What the program finds in the library (engine/ranks/open_processes.h).
#include <mpi.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "ops/backend_version.h"
#include "ops/mpi/mpi_group.h"

extern "C" __attribute__((visibility("default"))) quire::ProcessGroup* quire_open_processes(const char* version) {
  if (std::strcmp(version, kBackendVersion) != 0) return nullptr;
  // Open MPI sends what it has to say of a lost connection to mpirun, and waits there, for ever if that host is lost, too.
  ::setenv("OMPI_MCA_orte_execute_quiet", "1", 0);
  int given = 0, rank = 0;
  // The thread that loads the model and the engine's own call it, one after the other.
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &given) != MPI_SUCCESS || given < MPI_THREAD_SERIALIZED)
    throw quire::no_resource("MPI cannot be started for several threads; start quire by mpirun");
  MPI_Comm communicator = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &communicator);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
  MPI_Comm_rank(communicator, &rank);
  return new quire::mpi::MpiGroup(rank, quire::mpi::Peers(communicator), communicator);
}
