// Clusters of blocks, barriers of arrivals and copies of boxes (alphabet/alphabet.h): mbarrier and TMA of sm_90a.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace quire::cuda {

inline constexpr int kBoxColumns = 64;
struct BoxMap {
  CUtensorMap map;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
DEVICE int block_of_cluster() {
  uint32_t number;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(number));
  return static_cast<int>(number);
}
DEVICE void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
}
DEVICE void init_arrivals(uint64_t* at, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1; fence.mbarrier_init.release.cluster;" ::"r"(shared_address(at)),
               "r"(count)
               : "memory");
}
DEVICE void arrive(uint64_t* at, int block) {
  asm volatile(
      "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there]; }" ::"r"(shared_address(at)),
      "r"(block)
      : "memory");
}
DEVICE void arrive_expecting(uint64_t* at, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(at)), "r"(bytes)
               : "memory");
}
DEVICE void wait_arrivals(uint64_t* at, int parity) {
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(shared_address(at)), "r"(parity)
        : "memory");
  }
}
DEVICE void copy_box(const BoxMap& from, int column, int row, uint8_t* to, uint64_t* arrivals, uint32_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, "
      "%5}], [%2], %3;" ::"r"(shared_address(to)),
      "l"(&from.map), "r"(shared_address(arrivals)), "h"(static_cast<uint16_t>(blocks)), "r"(column), "r"(row)
      : "memory");
}
#else  // compiled, and never run
DEVICE int block_of_cluster() { return 0; }
DEVICE void sync_cluster() {}
DEVICE void init_arrivals(uint64_t*, int) {}
DEVICE void arrive(uint64_t*, int) {}
DEVICE void arrive_expecting(uint64_t*, int) {}
DEVICE void wait_arrivals(uint64_t*, int) {}
DEVICE void copy_box(const BoxMap&, int, int, uint8_t*, uint64_t*, uint32_t) {}
#endif

}  // namespace quire::cuda
