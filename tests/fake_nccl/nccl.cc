#include "fake_nccl/nccl.h"

#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

namespace quire::testing {
namespace {

// What communicators have in common.
struct Clique {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<const std::byte*> sent;  // by rank
  int arrived = 0;
  unsigned rounds = 0;
  bool aborted = false;
};

struct Communicator {
  int rank, ranks;
  std::shared_ptr<Clique> clique;
};

struct Log {
  std::mutex mutex;
  std::vector<NcclCall> calls, taken;
  int gathers_to_failure = -1;  // -1: none
};
Log& the_log() {
  static Log log;
  return log;
}

void note(NcclCall call) {
  const std::lock_guard lock(the_log().mutex);
  the_log().calls.push_back(std::move(call));
}

bool fails_now() {
  const std::lock_guard lock(the_log().mutex);
  int& left = the_log().gathers_to_failure;
  return left >= 0 && left-- == 0;
}

// False: the communicators were aborted.
bool wait_for_all(Clique& clique, int ranks, std::unique_lock<std::mutex>& lock) {
  const unsigned round = clique.rounds;
  if (++clique.arrived == ranks) {
    clique.arrived = 0;
    ++clique.rounds;
    clique.changed.notify_all();
  }
  clique.changed.wait(lock, [&] { return clique.rounds != round || clique.aborted; });
  return !clique.aborted;
}

constexpr int kSystemError = 2, kInvalidArgument = 4;

int type_bytes(int type) { return type == 0 || type == 1 ? 1 : 0; }  // int8, uint8

}  // namespace
}  // namespace quire::testing

using quire::testing::Communicator;

extern "C" {

int ncclCommInitAll(Communicator** to, int count, const int* devices) {
  auto clique = std::make_shared<quire::testing::Clique>();
  clique->sent.resize(static_cast<size_t>(count));
  for (int rank = 0; rank < count; ++rank) to[rank] = new Communicator{rank, count, clique};
  quire::testing::note({.name = "CommInitAll", .ranks = count, .devices = {devices, devices + count}});
  return 0;
}

int ncclAllGather(const void* from, void* to, size_t count, int type, Communicator* communicator, void* stream) {
  const auto *sent = static_cast<const std::byte*>(from), *whole = static_cast<const std::byte*>(to);
  quire::testing::note({.name = "AllGather",
                        .rank = communicator->rank,
                        .ranks = communicator->ranks,
                        .devices = {},
                        .count = count,
                        .type = type,
                        .in_place = sent - whole,
                        .stream = stream});
  const size_t bytes = count * static_cast<size_t>(quire::testing::type_bytes(type));
  if (bytes == 0) return quire::testing::kInvalidArgument;
  if (quire::testing::fails_now()) return quire::testing::kSystemError;
  const std::shared_ptr<quire::testing::Clique> clique = communicator->clique;
  const int ranks = communicator->ranks;
  std::unique_lock lock(clique->mutex);
  clique->sent[static_cast<size_t>(communicator->rank)] = sent;
  if (!wait_for_all(*clique, ranks, lock)) return quire::testing::kSystemError;
  for (size_t rank = 0; rank < clique->sent.size(); ++rank) {
    auto* const at = static_cast<std::byte*>(to) + rank * bytes;
    if (at != clique->sent[rank]) std::memmove(at, clique->sent[rank], bytes);
  }
  return wait_for_all(*clique, ranks, lock) ? 0 : quire::testing::kSystemError;
}

int ncclCommAbort(Communicator* communicator) {
  quire::testing::note({.name = "CommAbort", .rank = communicator->rank, .ranks = communicator->ranks});
  {
    const std::lock_guard lock(communicator->clique->mutex);
    communicator->clique->aborted = true;
    communicator->clique->changed.notify_all();
  }
  delete communicator;
  return 0;
}

int ncclCommDestroy(Communicator* communicator) {
  quire::testing::note({.name = "CommDestroy", .rank = communicator->rank, .ranks = communicator->ranks});
  delete communicator;
  return 0;
}

const char* ncclGetErrorString(int error) { return error == quire::testing::kSystemError ? "fake failure" : "fake"; }

std::vector<quire::testing::NcclCall>* fake_nccl_take_calls() {
  auto& log = quire::testing::the_log();
  const std::lock_guard lock(log.mutex);
  log.taken = std::exchange(log.calls, {});
  return &log.taken;
}

void fake_nccl_fail_after(int gathers) {
  const std::lock_guard lock(quire::testing::the_log().mutex);
  quire::testing::the_log().gathers_to_failure = gathers;
}

}  // extern "C"
