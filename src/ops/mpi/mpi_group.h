// Processes that MPI has started.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/mpi/peers.h"
#include "ops/process_group.h"

namespace quire::mpi {

// Messages go straight from rank to rank, each waited for by its name: a collective operation of MPI cannot say who is
// missing, and most of them cannot end without that rank.
class MpiGroup final : public ProcessGroup {
 public:
  // peers: of all ranks. communicator: of its own, which returns errors.
  MpiGroup(int rank, Peers peers, MPI_Comm communicator);
  // Ends MPI if close() was called. Otherwise the others are told, and the process must end: mpirun then ends the others, too.
  ~MpiGroup() override;

  std::string name(int rank) const override { return peers_.name(rank); }
  void exchange(std::span<const std::byte> mine, std::span<const size_t> sizes, std::span<std::byte> all) override;
  void send_to(int rank, std::span<const std::byte> bytes) override;
  void receive_from(int rank, std::span<std::byte> bytes) override;
  void send(std::span<const std::byte> message) override;
  void receive(std::vector<std::byte>& message) override;
  void fail(std::string_view why) noexcept override;
  void close() noexcept override { closed_ = true; }

 private:
  void begin(int status, int rank);
  void begin_sending(std::span<const std::byte> bytes, int other, int tag);
  void begin_receiving(std::span<std::byte> bytes, int other, int tag);
  template <class Done>
  void wait_until(double patience, const char* what, const Done& done);
  void wait_for_requests(double patience, const char* what);
  void look_at_others();
  std::vector<int> missing();
  [[noreturn]] void lose_missing(double patience, const char* what);
  void require_group() const;
  void tell(const std::string& why);
  [[noreturn]] void lose(const std::string& why);

  Peers peers_;
  MPI_Comm communicator_;
  std::vector<MPI_Request> requests_;  // those that are under way
  std::vector<int> waits_for_;         // the rank of each
  bool closed_ = false;
  std::string trouble_;  // what has happened to another process; empty: nothing is known
  std::string lost_;     // why; empty: it is not
};

}  // namespace quire::mpi
