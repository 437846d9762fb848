// Processes that compute together, on one host or on several: what ranks need of them.
//
// MPI implements it (ops/mpi/), in a library of its own that the program opens at run time (engine/ranks/open_processes.h).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Which processes share this one's machine.
struct ProcessPlaces {
  int on_host = 1;   // processes on this host, with this one
  int on_cores = 1;  // those of them that may use the same cores as this one
};

// This process and the others. All must call exchange() in the same order with the same sizes; each from one thread at a
// time. Every function throws Error (kResource) if another process has ended, has failed or does not answer in time; the
// message names it. After that the group is lost: nothing can be exchanged any more.
class ProcessGroup {
 public:
  ProcessGroup(int rank, int ranks, ProcessPlaces places) : rank_(rank), ranks_(ranks), places_(places) {}
  virtual ~ProcessGroup() = default;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  const ProcessPlaces& places() const { return places_; }
  // "rank 1 (host b, process 4711)".
  virtual std::string name(int rank) const = 0;

  // Sends every rank's bytes to all ranks. sizes: of each rank's bytes. all: the sum of the sizes; rank r's bytes lie after
  // those of the ranks before it. This rank's own are not copied.
  virtual void exchange(std::span<const std::byte> mine, std::span<const size_t> sizes, std::span<std::byte> all) = 0;
  // From one rank to one other, which takes what it sends in the same order, and knows the sizes. send_to() may wait until the
  // other takes it, or not.
  virtual void send_to(int rank, std::span<const std::byte> bytes) = 0;
  virtual void receive_from(int rank, std::span<std::byte> bytes) = 0;
  // From rank 0 to all others: rank 0 sends, and each of the others receives. The message may be changed after send().
  virtual void send(std::span<const std::byte> message) = 0;
  virtual void receive(std::vector<std::byte>& message) = 0;

  // How long the functions above wait for others, in seconds in which this process runs; 0, as at first: for ever. receive()
  // waits for `orders`.
  void set_patience(double exchanges, double orders) {
    exchange_patience_ = exchanges;
    order_patience_ = orders;
  }

  // Tells the others that this process cannot go on, and why. The group is lost.
  virtual void fail(std::string_view why) noexcept = 0;
  // All others have ended their work or are about to, and call it, too.
  virtual void close() noexcept = 0;

 protected:
  double exchange_patience_ = 0, order_patience_ = 0;

 private:
  const int rank_, ranks_;
  const ProcessPlaces places_;
};

// What the library of an implementation has, as "quire_open_processes". Starts it, and returns this process's group; nullptr:
// `version` is not its kBackendVersion (ops/backend.h). Throws Error.
using OpenProcesses = ProcessGroup* (*)(const char* version);

}  // namespace quire
