#include "cuda/ranks/nccl_exchange.h"

#include <dlfcn.h>

#include <chrono>
#include <type_traits>
#include <utility>

#include "base/cpu.h"
#include "quire/error.h"

namespace quire::cuda {
namespace {

constexpr std::chrono::milliseconds kMostInCall{200};  // a call takes microseconds

}  // namespace

NcclFunctions open_nccl(const std::string& library) {
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    throw Error(ErrorKind::kUnsupported,
                std::string("--tensor-parallel-size with GPUs needs NCCL, which cannot be loaded: ") + ::dlerror() +
                    "; install the package libnccl2 (of NVIDIA's repository for your distribution), or "
                    "`pip install nvidia-nccl-cu12` and add its folder nvidia/nccl/lib to LD_LIBRARY_PATH");
  NcclFunctions functions;
  const auto find = [&](const char* name, auto& to) {
    void* const found = ::dlsym(handle, name);
    if (!found)
      throw Error(ErrorKind::kUnsupported,
                  library + " has no function " + name + "; install a newer NCCL (2.4 or later)");
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(found);
  };
  find("ncclCommInitAll", functions.init_all);
  find("ncclAllGather", functions.all_gather);
  find("ncclCommAbort", functions.abort);
  find("ncclCommDestroy", functions.destroy);
  find("ncclGetErrorString", functions.error_text);
  return functions;
}

NcclExchange::NcclExchange(std::span<Device* const> devices, const std::string& library)
    : nccl_(open_nccl(library)),
      devices_(devices.begin(), devices.end()),
      barrier_(static_cast<int>(devices.size()), static_cast<int>(devices.size()) <= usable_cores()),
      members_(devices.size()) {
  connect();
}

NcclExchange::~NcclExchange() {
  for (const Member& member : members_)
    if (member.communicator) nccl_.destroy(member.communicator);
}

void NcclExchange::check(int result, const char* what) const {
  if (result == 0) return;
  throw Error(ErrorKind::kResource, std::string("NCCL failed to ") + what + ": " + nccl_.error_text(result) +
                                        "; with NCCL_DEBUG=INFO in the environment it says more");
}

void NcclExchange::connect() {
  std::vector<int> numbers;
  for (const Device* device : devices_) numbers.push_back(device->facts().number);
  std::vector<NcclFunctions::Communicator> made(devices_.size());
  check(nccl_.init_all(made.data(), static_cast<int>(made.size()), numbers.data()), "connect the GPUs");
  for (size_t rank = 0; rank < made.size(); ++rank) members_[rank].communicator = made[rank];
  connected_ = true;
}

// Ranks wait for each other first, and then do nothing but call NCCL: so no call waits for a rank that has failed before it. What a
// rank that fails later leaves unfinished on the others' streams ends by give_up().
void NcclExchange::gather(int rank, std::byte* blocks, size_t bytes) {
  const bool broken = !connected_;  // the same for all ranks: it becomes true between two barriers, which all pass
  barrier_.wait();
  if (broken) {
    if (rank == 0) connect();
    barrier_.wait();
  }
  const auto own = static_cast<size_t>(rank);
  Member& member = members_[own];
  const std::lock_guard lock(member.mutex);
  if (!member.communicator) throw RankGone();
  const int result = nccl_.all_gather(blocks + own * bytes, blocks, bytes, NcclFunctions::kUint8, member.communicator,
                                      devices_[own]->stream());
  if (!connected_) throw RankGone();  // the call was ended
  check(result, "gather");
}

void NcclExchange::give_up() {
  barrier_.give_up();
  if (!connected_.exchange(false)) return;  // another rank does it
  for (Member& member : members_) {
    // NCCL connects devices in their first call, which waits for those of the others: then it is ended in the call.
    const std::unique_lock lock(member.mutex, kMostInCall);
    nccl_.abort(std::exchange(member.communicator, nullptr));
  }
}

}  // namespace quire::cuda
