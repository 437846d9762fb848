#include "engine/ranks/open_processes.h"

#include <cstdlib>

#include "base/error.h"
#include "base/files/checksum.h"
#include "base/files/mapped_file.h"
#include "base/plugin.h"
#include "base/program_file.h"
#include "engine/ranks/agreement.h"
#include "engine/ranks/rank_group.h"
#include "ops/backend_version.h"

namespace quire {
namespace {

std::string this_program() { return fmt::format("{:016x}", checksum(MappedFile(program_file()).bytes())); }

}  // namespace

bool is_one_of_several() {
  // Open MPI's mpirun; MPICH's.
  for (const char* const variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const char* const size = std::getenv(variable)) return std::atoi(size) > 1;
  }
  return false;
}

std::shared_ptr<ProcessGroup> open_processes() {
  const Plugin plugin("mpi", "quire_open_processes", "--ranks mpi", "./dev build, where MPI is installed");
  std::shared_ptr<ProcessGroup> group(plugin.function<OpenProcesses>()(kBackendVersion));
  if (!group) plugin.refuse_version();
  if (group->ranks() == 1)
    throw invalid(
        "--ranks mpi needs several processes, but this one is alone; start them with the mpirun of the MPI that "
        "libquire_mpi.so was built with: mpirun -n 2 quire ...");
  if (group->ranks() > kMaxRanks)
    throw invalid("{} processes are too many ranks; start at most {}", group->ranks(), kMaxRanks);
  require_same(*group, {{"program", this_program()}});
  return group;
}

}  // namespace quire
