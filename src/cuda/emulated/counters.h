// What the launches of a kernel did: what decides how fast it is on a GPU.
#pragma once

#include <algorithm>
#include <cstdint>

namespace quire::cuda {

struct KernelCounters {
  uint64_t launches = 0, blocks = 0;
  int threads = 0, shared_bytes = 0;             // of a block, in the launch that had the most
  uint64_t global_read = 0, global_written = 0;  // bytes that threads asked for
  // Of these, bytes that no thread of the launch had read or written before: what a GPU's memory moves if its cache keeps all
  // else. Only with BlockChecks::races.
  uint64_t first_read = 0, first_written = 0;
  // Products of 16 rows by 8 columns: multiply_*(), by warp; of multiply_*_wide() one for each 8 columns. They have 16
  // inputs each, but 32 in those of int8 and E4M3.
  uint64_t matrix_products = 0;
  uint64_t integer_products = 0;  // those of int8 among them

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
    threads = std::max(threads, other.threads);
    shared_bytes = std::max(shared_bytes, other.shared_bytes);
    global_read += other.global_read;
    global_written += other.global_written;
    first_read += other.first_read;
    first_written += other.first_written;
    matrix_products += other.matrix_products;
    integer_products += other.integer_products;
    global_requests += other.global_requests;
    global_sectors += other.global_sectors;
    shared_requests += other.shared_requests;
    bank_conflicts += other.bank_conflicts;
    return *this;
  }
};

}  // namespace quire::cuda
