// What the libnccl.so.2 of tests has done. It connects "devices" whose memory is the host's, and copies at once: the ranks' threads wait
// for each other, as kernels of NCCL do.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace quire::testing {

struct NcclCall {
  std::string name;  // without "nccl"
  int rank = -1;     // of the communicator; -1: of none
  int ranks = 0;
  std::vector<int> devices;  // CommInitAll
  size_t count = 0;          // AllGather
  int type = -1;             // likewise
  ptrdiff_t in_place = -1;   // likewise: bytes from the begin of what is received to what is sent
  void* stream = nullptr;    // likewise
};

}  // namespace quire::testing

// Symbols of the library, for dlsym(): the calls since the last time, and after how many more calls of AllGather one fails.
extern "C" std::vector<quire::testing::NcclCall>* fake_nccl_take_calls();
extern "C" void fake_nccl_fail_after(int gathers);
