#include "ops/mpi/mpi_group.h"

#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>
#include <numeric>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/spin.h"

namespace quire::mpi {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

enum Tag : int { kExchange = 1, kOrder, kFailure, kDirect };

// Between two ranks: pieces that Open MPI sends at once (btl_tcp_eager_limit is 64 KiB). Larger messages wait for the
// receiver to ask for them, which takes the network's delay twice more.
constexpr size_t kPieceBytes = size_t{32} << 10;

// A process that gives up waits so long for others to take its last message.
constexpr milliseconds kLastWords{50};
// A process that waits longer than this is not about to be served: it gives its core away, and looks at the others.
constexpr milliseconds kShortWait{2};
// How often MPI gets a chance to receive the last message of a process that has ended.
constexpr int kLooksForLastWords = 20;
// Between two looks at the others, a process is not counted as running for longer than this: it was stopped, with all others
// of its machine perhaps.
constexpr milliseconds kLongestGap{100};

std::string error_text(int status) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int size = 0;
  MPI_Error_string(status, text.data(), &size);
  return {text.data(), static_cast<size_t>(size)};
}

}  // namespace

MpiGroup::MpiGroup(int rank, Peers peers, MPI_Comm communicator)
    : ProcessGroup(rank, peers.size(), peers.places()), peers_(std::move(peers)), communicator_(communicator) {}

MpiGroup::~MpiGroup() {
  if (!closed_) fail("it has ended early");
  if (!lost_.empty()) return;
  MPI_Comm_free(&communicator_);
  MPI_Finalize();
}

// The others are told at once: otherwise they would see this process end, and not know that another is the cause.
void MpiGroup::lose(const std::string& why) {
  tell(why);
  throw no_resource("{}", why);
}

void MpiGroup::require_group() const {
  if (!lost_.empty()) throw no_resource("{}", lost_);
}

// A request to or from this rank has begun.
void MpiGroup::begin(int status, int rank) {
  if (status != MPI_SUCCESS) lose(fmt::format("{} cannot be reached: {}", name(rank), error_text(status)));
  waits_for_.push_back(rank);
}

// Sees whether another process has given up or ended. One that has ended may have said why: its message is taken first.
void MpiGroup::look_at_others() {
  if (!trouble_.empty()) return;
  const int ended = peers_.ended();
  for (int looks = ended >= 0 ? kLooksForLastWords : 1; looks > 0; --looks) {
    int found = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, kFailure, communicator_, &found, &status) != MPI_SUCCESS || !found) continue;
    int size = 0;
    MPI_Get_count(&status, MPI_CHAR, &size);
    trouble_.resize(static_cast<size_t>(size));
    MPI_Recv(trouble_.data(), size, MPI_CHAR, status.MPI_SOURCE, kFailure, communicator_, MPI_STATUS_IGNORE);
    return;
  }
  if (ended >= 0) trouble_ = fmt::format("{} has ended", name(ended));
}

// The ranks whose requests are still under way.
std::vector<int> MpiGroup::missing() {
  std::vector<int> ranks;
  for (size_t i = 0; i < requests_.size(); ++i) {
    int done = 0;
    if (MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done) continue;
    if (std::ranges::find(ranks, waits_for_[i]) == ranks.end()) ranks.push_back(waits_for_[i]);
  }
  if (ranks.empty()) ranks.push_back(0);  // who sends the orders
  return ranks;
}

// A stopped process is the cause, even if its own results are here: it may hold up the queue in shared memory by which others'
// come.
void MpiGroup::lose_missing(double patience, const char* what) {
  std::vector<int> ranks = peers_.stopped();
  const bool stopped = !ranks.empty();
  if (!stopped) ranks = missing();
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(name(rank) + (stopped ? ", which is stopped" : ""));
  lose(fmt::format("no answer from {}: no {} for {} s", fmt::join(names, " and "), what, patience));
}

// done() says whether it is over.
template <class Done>
void MpiGroup::wait_until(double patience, const char* what, const Done& done) {
  if (spin_until(done)) return;
  Clock::duration waited{};
  for (auto last = Clock::now(); !done();) {
    const auto now = Clock::now();
    waited += std::min<Clock::duration>(now - last, kLongestGap);
    last = now;
    if (waited < kShortWait) {
      ::sched_yield();
      continue;
    }
    look_at_others();
    if (done()) return;  // what a process has sent before it ended counts
    if (!trouble_.empty()) lose(trouble_);
    if (patience > 0 && waited > std::chrono::duration<double>(patience)) {
      // A rank that hangs holds up others, of which one that misses nobody else knows who it is, and says so.
      if (missing().size() == 1 || waited > std::chrono::duration<double>(patience) + 2 * kLastWords)
        lose_missing(patience, what);
    }
    std::this_thread::sleep_for(waited < std::chrono::seconds(1) ? microseconds(50) : microseconds(500));
  }
}

void MpiGroup::wait_for_requests(double patience, const char* what) {
  wait_until(patience, what, [&] {
    int done = 0;
    const int status = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
    if (status != MPI_SUCCESS) lose(fmt::format("{} is cut off: {}", name(missing().front()), error_text(status)));
    return done != 0;
  });
  requests_.clear();
  waits_for_.clear();
}

void MpiGroup::begin_sending(std::span<const std::byte> bytes, int other, int tag) {
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(kPieceBytes, bytes.size())))
    begin(MPI_Isend(bytes.data(), static_cast<int>(std::min(kPieceBytes, bytes.size())), MPI_BYTE, other, tag,
                    communicator_, &requests_.emplace_back()),
          other);
}

void MpiGroup::begin_receiving(std::span<std::byte> bytes, int other, int tag) {
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(kPieceBytes, bytes.size())))
    begin(MPI_Irecv(bytes.data(), static_cast<int>(std::min(kPieceBytes, bytes.size())), MPI_BYTE, other, tag,
                    communicator_, &requests_.emplace_back()),
          other);
}

void MpiGroup::exchange(std::span<const std::byte> mine, std::span<const size_t> sizes, std::span<std::byte> all) {
  assert(mine.size() == sizes[static_cast<size_t>(rank())]);
  assert(all.size() == std::reduce(sizes.begin(), sizes.end()));
  require_group();
  for (int from = 0; from < ranks(); ++from) {
    const size_t size = sizes[static_cast<size_t>(from)];
    if (from != rank()) begin_receiving(all.first(size), from, kExchange);
    all = all.subspan(size);
  }
  // Each begins with the rank after its own, so that not all send to the same.
  for (int i = 1; i < ranks(); ++i) begin_sending(mine, (rank() + i) % ranks(), kExchange);
  wait_for_requests(exchange_patience_, "results");
}

void MpiGroup::send_to(int other, std::span<const std::byte> bytes) {
  require_group();
  begin_sending(bytes, other, kDirect);
  wait_for_requests(exchange_patience_, "sign that it takes results");
}

void MpiGroup::receive_from(int other, std::span<std::byte> bytes) {
  require_group();
  begin_receiving(bytes, other, kDirect);
  wait_for_requests(exchange_patience_, "results");
}

void MpiGroup::send(std::span<const std::byte> message) {
  assert(rank() == 0);
  require_group();
  for (int to = 1; to < ranks(); ++to)
    begin(MPI_Isend(message.data(), static_cast<int>(message.size()), MPI_BYTE, to, kOrder, communicator_,
                    &requests_.emplace_back()),
          to);
  wait_for_requests(exchange_patience_, "sign that it takes orders");
}

void MpiGroup::receive(std::vector<std::byte>& message) {
  assert(rank() > 0);
  require_group();
  int found = 0, size = 0;
  MPI_Status status;
  waits_for_.clear();
  wait_until(order_patience_, "order", [&] {
    const int probed = MPI_Iprobe(0, kOrder, communicator_, &found, &status);
    if (probed != MPI_SUCCESS) lose(fmt::format("{} is cut off: {}", name(0), error_text(probed)));
    return found != 0;
  });
  MPI_Get_count(&status, MPI_BYTE, &size);
  message.resize(static_cast<size_t>(size));
  begin(MPI_Irecv(message.data(), size, MPI_BYTE, 0, kOrder, communicator_, &requests_.emplace_back()), 0);
  wait_for_requests(exchange_patience_, "order");
}

void MpiGroup::fail(std::string_view why) noexcept {
  if (!lost_.empty()) return;  // the others know, or cannot be told
  try {
    tell(fmt::format("{} has failed: {}", name(rank()), why));
  } catch (const std::bad_alloc&) {  // they see this process end
  }
}

// From now on the group is lost, and why.
void MpiGroup::tell(const std::string& why) {
  lost_ = why;
  std::vector<MPI_Request> requests;
  for (int other = 0; other < ranks(); ++other) {
    if (other == rank()) continue;
    MPI_Isend(lost_.data(), static_cast<int>(lost_.size()), MPI_CHAR, other, kFailure, communicator_,
              &requests.emplace_back());
  }
  const auto end = Clock::now() + kLastWords;
  for (int done = 0; !done && Clock::now() < end; std::this_thread::sleep_for(microseconds(100)))
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
}

}  // namespace quire::mpi
