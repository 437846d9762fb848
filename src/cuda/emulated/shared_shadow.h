// Who wrote and read each byte of a block's shared memory, and when: finds what a GPU would get wrong only sometimes.
//
//   uninitialised   a read of bytes that no thread of the block wrote
//   race            two threads access the same byte, one of them writes, and no barrier of both lies between. Lanes of a warp
//                   need sync_warp(): shuffles and products of matrices do not order accesses
//   copy            an access of bytes that copy_async() is still writing, before the thread that copies has waited
//   fence           a product of a warpgroup reads bytes that were stored without fence_shared() before the barrier. Copies of boxes
//                   need none
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/emulated/clocks.h"

namespace quire::cuda::emulated {

// What is wrong with an access, if anything.
struct SharedConflict {
  enum class Kind : uint8_t { kNone, kUninitialised, kRaceWithRead, kRaceWithWrite, kCopying, kUnfenced };
  Kind kind = Kind::kNone;
  int other = 0;  // the thread that accessed the bytes before
  size_t at = 0;  // the first byte

  explicit operator bool() const { return kind != Kind::kNone; }
};

class SharedShadow {
 public:
  // A new block, with so much memory.
  void reset(size_t bytes);

  SharedConflict read(size_t at, size_t bytes, int thread);
  SharedConflict write(size_t at, size_t bytes, int thread);
  SharedConflict start_copy(size_t at, size_t bytes, int thread);
  void finish_copy(size_t at, size_t bytes, int thread);
  // A copy of a box that start_copy() began has come: as if it had been written there and then.
  void finish_box(size_t at, size_t bytes);
  // fence_shared() of the thread.
  void fence(int thread);
  // A product of the warp, which started when its past was `past`, and ends now.
  SharedConflict read_product(size_t at, size_t bytes, int warp, const BlockClocks::Past& past);

  BlockClocks clocks;

 private:
  static constexpr uint16_t kSeveralLanes = 0xFFFF;
  struct Reader {
    uint32_t when = 0;    // 0: none
    uint16_t thread = 0;  // or kSeveralLanes
    uint16_t warp = 0;
  };
  // A word, or one byte of a split word.
  struct Cell {
    uint32_t block = 0;    // the number of the block that this is of; another: as new
    uint32_t written = 0;  // when; 0: never
    uint32_t fences = 0;   // of the writer before it wrote
    uint16_t writer = 0;
    bool copying = false;
    bool of_box = false;   // written by a copy of a box
    Reader reader;         // since it was written
    uint32_t readers = 0;  // if several warps read: 1 + the index in readers_
    uint32_t bytes = 0;    // if split: 1 + the index in split_
  };
  using Readers = std::array<Reader, BlockClocks::kMostWarps>;

  Cell& word(size_t i);
  std::array<Cell, 4>& split(Cell& cell);
  template <class Visit>
  SharedConflict visit(size_t at, size_t bytes, Visit&& f);
  static bool in_past(const Reader& reader, int thread, const BlockClocks::Past& past);
  SharedConflict check_write(const Cell& cell, int thread) const;
  void add_reader(Cell& cell, int thread, int warp);
  void set_written(Cell& cell, int thread) const;

  uint32_t block_ = 0;
  std::vector<Cell> words_;
  std::vector<std::array<Cell, 4>> split_;
  std::vector<Readers> readers_;
  std::vector<std::vector<uint32_t>> fences_;  // by thread: when
};

}  // namespace quire::cuda::emulated
