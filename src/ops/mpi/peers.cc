#include "ops/mpi/peers.h"

#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>

#include "base/error.h"

namespace quire::mpi {
namespace {

// What each process says of itself.
struct Card {
  std::array<char, 64> host{}, boot{}, processes{};  // boot and processes: the same where process numbers mean the same
  int32_t process = 0;
  cpu_set_t cores{};
};

template <size_t N>
void put(std::array<char, N>& to, const std::string& text) {
  std::memcpy(to.data(), text.data(), std::min(text.size(), N - 1));
}

Card own_card() {
  Card card;
  ::gethostname(card.host.data(), card.host.size() - 1);
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, boot);
  put(card.boot, boot);
  std::array<char, 64> link{};
  if (::readlink("/proc/self/ns/pid", link.data(), link.size() - 1) > 0) put(card.processes, link.data());
  card.process = ::getpid();
  CPU_ZERO(&card.cores);
  ::sched_getaffinity(0, sizeof card.cores, &card.cores);
  return card;
}

}  // namespace

Peers::Peers(MPI_Comm communicator) {
  int rank = 0, size = 0;
  MPI_Comm_rank(communicator, &rank);
  MPI_Comm_size(communicator, &size);
  const Card own = own_card();
  std::vector<Card> cards(static_cast<size_t>(size));
  if (MPI_Allgather(&own, sizeof own, MPI_BYTE, cards.data(), sizeof own, MPI_BYTE, communicator) != MPI_SUCCESS)
    throw no_resource("MPI cannot connect the {} processes", size);
  places_ = {.on_host = 0, .on_cores = 0};
  for (int other = 0; other < size; ++other) {
    const Card& card = cards[static_cast<size_t>(other)];
    Peer& peer = all_.emplace_back(Peer{.host = card.host.data(), .process = card.process});
    if (card.boot != own.boot) continue;
    ++places_.on_host;
    if (CPU_EQUAL(&card.cores, &own.cores)) ++places_.on_cores;
    if (other != rank && card.processes == own.processes)
      peer.watched = static_cast<int>(::syscall(SYS_pidfd_open, card.process, 0));
  }
}

Peers::~Peers() {
  for (const Peer& peer : all_)
    if (peer.watched >= 0) ::close(peer.watched);
}

std::string Peers::name(int rank) const {
  const Peer& peer = all_[static_cast<size_t>(rank)];
  return fmt::format("rank {} (host {}, process {})", rank, peer.host, peer.process);
}

int Peers::ended() const {
  for (size_t rank = 0; rank < all_.size(); ++rank) {
    pollfd watched{.fd = all_[rank].watched, .events = POLLIN, .revents = 0};
    if (watched.fd >= 0 && ::poll(&watched, 1, 0) > 0) return static_cast<int>(rank);
  }
  return -1;
}

std::vector<int> Peers::stopped() const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < all_.size(); ++rank) {
    if (all_[rank].watched < 0) continue;
    std::string stat;
    std::getline(std::ifstream(fmt::format("/proc/{}/stat", all_[rank].process)), stat);
    const size_t state = stat.rfind(')') + 2;  // after the program's name, which may have any characters
    if (state < stat.size() && (stat[state] == 'T' || stat[state] == 't')) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace quire::mpi
