// Who the processes of a group are, and whether those of this host live and run.
#pragma once

#include <mpi.h>

#include <string>
#include <vector>

#include "ops/process_group.h"

namespace quire::mpi {

class Peers {
 public:
  // All processes of the communicator must call it. Throws Error.
  explicit Peers(MPI_Comm communicator);
  ~Peers();
  Peers(Peers&& other) noexcept = default;
  Peers& operator=(Peers&&) = delete;

  int size() const { return static_cast<int>(all_.size()); }
  const ProcessPlaces& places() const { return places_; }
  std::string name(int rank) const;
  // A process of this host that has ended; -1: none. Those of other hosts are not seen.
  int ended() const;
  // The processes of this host that are stopped (SIGSTOP, a debugger): they compute nothing until somebody continues them.
  std::vector<int> stopped() const;

 private:
  struct Peer {
    std::string host;
    int process = 0;
    int watched = -1;  // a file descriptor that becomes readable when the process ends; -1: it is on another host
  };

  std::vector<Peer> all_;  // by rank
  ProcessPlaces places_;
};

}  // namespace quire::mpi
