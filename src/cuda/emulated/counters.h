// What the launches of a kernel did: what decides how fast it is on a GPU.
#pragma once

#include <cstdint>

namespace quire::cuda {

struct KernelCounters {
  uint64_t launches = 0, blocks = 0;
  uint64_t global_read = 0, global_written = 0;  // bytes that threads asked for
  uint64_t matrix_products = 0;  // multiply_*(), by warp; of multiply_bf16_wide() one for each 8 columns

  // Accesses of a warp in the same place of a kernel are one request, which the emulated device guesses: between two barriers, the
  // n-th reads of all lanes are one, and so are the n-th writes. Lanes that took different branches may be mistaken.
  uint64_t global_requests = 0;
  uint64_t global_sectors =
      0;  // of 32 bytes, aligned: what the requests move. Below 32 lanes * bytes / 32: lanes share
  uint64_t shared_requests = 0;
  uint64_t bank_conflicts = 0;  // passes over the 32 banks beyond those that the requests' bytes need

  KernelCounters& operator+=(const KernelCounters& other) {
    launches += other.launches;
    blocks += other.blocks;
    global_read += other.global_read;
    global_written += other.global_written;
    matrix_products += other.matrix_products;
    global_requests += other.global_requests;
    global_sectors += other.global_sectors;
    shared_requests += other.shared_requests;
    bank_conflicts += other.bank_conflicts;
    return *this;
  }
};

}  // namespace quire::cuda
