// An exchange between GPUs of this process by NCCL, NVIDIA's library of collective operations, which it opens at run time.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "cuda/ranks/exchange.h"
#include "ops/local_ranks.h"

namespace quire::cuda {

// The functions of libnccl.so.2 that are used, as its public header nccl.h declares them. Its types are pointers and ints of C; 0
// is success.
struct NcclFunctions {
  using Communicator = void*;  // ncclComm_t
  static constexpr int kUint8 = 1;

  int (*init_all)(Communicator* communicators, int count, const int* devices) = nullptr;
  int (*all_gather)(const void* from, void* to, size_t count, int type, Communicator, void* stream) = nullptr;
  int (*abort)(Communicator) = nullptr;
  int (*destroy)(Communicator) = nullptr;
  const char* (*error_text)(int) = nullptr;
};
// library: its name or path; it stays loaded. Throws Error (kUnsupported): it cannot be loaded; the message says what to install.
NcclFunctions open_nccl(const std::string& library);

class NcclExchange final : public Exchange {
 public:
  // devices: by rank, GPUs with a stream each (Device::stream()); they must outlive it. Throws Error: as open_nccl(), or NCCL
  // cannot connect them.
  explicit NcclExchange(std::span<Device* const> devices, const std::string& library = "libnccl.so.2");
  ~NcclExchange() override;
  NcclExchange(const NcclExchange&) = delete;
  NcclExchange& operator=(const NcclExchange&) = delete;

  void gather(int rank, std::byte* blocks, size_t bytes) override;
  void give_up() override;
  void reset() override { barrier_.reset(); }

 private:
  struct Member {
    std::timed_mutex mutex;                              // held in calls with the communicator
    NcclFunctions::Communicator communicator = nullptr;  // after give_up(): nullptr
  };

  void connect();
  void check(int result, const char* what) const;

  const NcclFunctions nccl_;
  const std::vector<Device*> devices_;
  RankBarrier barrier_;
  std::vector<Member> members_;         // by rank
  std::atomic<bool> connected_{false};  // all of them
};

}  // namespace quire::cuda
