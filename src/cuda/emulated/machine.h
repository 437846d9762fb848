// What kernels ask of the emulated device: the alphabet (alphabet/emulated.h) is made of these functions. Only a thread of
// a running block may call them (emulated/block.h). Mistakes that they find end the launch with a DeviceFault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace quire::cuda::emulated {

// A place in a kernel's text: of a call, as a default argument.
struct Site {
  const char* file = "";
  int line = 0;
  // std::source_location without its header, which clang 14 cannot read.
  static constexpr Site current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

// Where the running thread is.
struct ThreadPlace {
  int thread = 0, threads = 0;  // of its block
  int block[3] = {}, blocks[3] = {};
  int block_of_cluster = 0, cluster = 1;  // its block's number, and how many there are
};

// The place of the thread that runs on this thread of the host; set by the block that runs it. All threads of a block run
// on one thread of the host, and kernels have no other way to know which they are: hence a variable of the thread.
extern constinit thread_local ThreadPlace* running;

// ---- Memory. They check; the caller reads or writes the bytes afterwards.

void read_global(const void* at, size_t bytes);
void write_global(const void* at, size_t bytes);
void read_shared(const void* at, size_t bytes);
void write_shared(const void* at, size_t bytes);
// The block's shared memory from this byte on.
std::byte* shared_memory(size_t offset);

// ---- Barriers

void wait_at_barrier(int id, int threads, Site site);  // 0: of the whole block
void wait_for_warp(Site site);
void wait_previous(Site site);
void sync_cluster(Site site);

// ---- Barriers of arrivals (emulated/arrivals.h). at: of the running block's shared memory.

void init_arrivals(const std::byte* at, int count);
void arrive(const std::byte* at, int block_of_cluster);
void arrive_expecting(const std::byte* at, int bytes);
void wait_arrivals(const std::byte* at, int parity, Site site);

// A matrix in global memory, as copies of boxes see it.
struct BoxSource {
  const std::byte* data;
  uint64_t stride;     // bytes from row to row
  int32_t rows;        // beyond them there are zeros
  int32_t columns;     // of 2 bytes; likewise
  int32_t box_rows;    // a box has kBoxColumns columns of so many rows
  int32_t unused = 0;  // instead of padding: launches are compared byte for byte
};
inline constexpr int kBoxColumns = 64;
// To the same place of the shared memory of each block whose bit is set; it counts as arrived bytes at the barrier there.
void copy_box(const BoxSource& from, int column, int row, std::byte* to, const std::byte* arrivals, uint32_t blocks);

// ---- Operations of all lanes of a warp

struct Shuffle {
  uint32_t value;  // replaced by the result
  int from;        // the lane; one outside 0 .. 31 leaves the value
};
struct Ballot {
  bool vote;
  uint32_t votes;  // the result
};
enum class MatrixNumbers : uint8_t { kBfloat16, kFloat16, kInt8, kE4M3 };
struct MatrixProduct {
  MatrixNumbers numbers;
  const uint32_t* a;  // [4]
  const uint32_t* b;  // [2]
  void* d;            // [4] of float or int32_t
};
struct MatrixLoad {
  const std::byte* row;
  std::span<uint32_t> words;  // [1, 2 or 4]
  bool transposed;
};
void perform(Shuffle& lane, Site site);
void perform(Ballot& lane, Site site);
void perform(MatrixProduct& lane, Site site);
void perform(MatrixLoad& lane, Site site);

// ---- Copies to shared memory

void start_copy(std::byte* to, const std::byte* from, size_t bytes, bool valid);
void commit_copies();
void wait_copies(int groups);

// ---- Products of warpgroups

struct WideProduct {
  MatrixNumbers numbers;  // kBfloat16, kE4M3 or kInt8
  void* d;                // [columns / 2] of float or int32_t
  int columns;
  const uint32_t* a;  // [4]
  uint64_t b;         // product_rows()
  bool add;
};
void fence_products(Site site);
void start_product(WideProduct& lane, Site site);
void commit_products(Site site);
void wait_products(int groups, Site site);
void fence_shared();
uint64_t product_rows(const std::byte* at);

}  // namespace quire::cuda::emulated
