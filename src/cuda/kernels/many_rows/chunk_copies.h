// How linears of warpgroups bring a chunk of inputs and weights to shared memory: what LinearOfManyRows and ByteChunks share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/codes.h"
#include "cuda/kernels/products.h"
#include "cuda/kernels/unroll.h"

namespace quire::cuda {

// The inputs of a chunk are 128 bytes of each of kColumns rows, in the swizzle of product_rows(). A thread copies the same 16 bytes of
// every kRowsPerPass-th row.
template <int kColumns, int kThreads>
struct RowCopies {
  static constexpr int kRowBytes = 128, kPieces = kRowBytes / 16;
  static constexpr int kRowsPerPass = kThreads / kPieces, kPasses = (kColumns + kRowsPerPass - 1) / kRowsPerPass;

  Global<const uint8_t> x;
  ptrdiff_t pass_bytes;      // of x, from pass to pass
  int to, row, piece, rows;  // to: in the stage; row: in the block; piece: of a row; rows: that the block has

  // first: the block's first row of all_rows.
  DEVICE RowCopies(const PreparedRows& from, int first, int all_rows)
      : x(from.data),
        pass_bytes(static_cast<ptrdiff_t>(kRowsPerPass) * from.stride),
        row(thread() / kPieces),
        piece(thread() % kPieces),
        rows(all_rows - first) {
    if (row < rows) x = from.data + (static_cast<ptrdiff_t>(first + row) * from.stride + piece * 16);
    to = row * kRowBytes + (piece ^ row % 8) * 16;
  }
  // exists: whether rows have this piece of the chunk. Zeros take the place of what does not exist.
  DEVICE void start(int chunk, bool exists, Shared<uint8_t> stage) const {
    const auto from = x + static_cast<ptrdiff_t>(chunk) * kRowBytes;
    UNROLL
    for (int k = 0; k < kPasses; ++k) {
      const int at = row + k * kRowsPerPass;
      if (kPasses * kRowsPerPass != kColumns && at >= kColumns) continue;
      const bool valid = at < rows && exists;
      copy_async<16>(stage + (to + k * kRowsPerPass * kRowBytes), valid ? from + k * pass_bytes : x, valid);
    }
  }
};

// Of codes that lanes read in lines of 64 bytes, a lane's i has so many neighbouring ones; 0: others, which stay as they are.
template <Codes kCodes>
inline constexpr int kCodeLines = kCodes == Codes::kBf16   ? 4
                                  : kCodeBits<kCodes> == 8 ? 2
                                  : kCodeBits<kCodes> == 4 ? 1
                                                           : 0;

// Where the 16 bytes at `offset` of a panel's codes lie in shared memory. Lines come in another order, first of each i its
// first one, and for i = 2, 3 with halves of a line exchanged: so the four i's and eight g's of a warp read from different banks.
template <Codes kCodes>
DEVICE int swizzled_codes(int offset) {
  if constexpr (kCodeLines<kCodes> == 0) return offset;
  constexpr int kOwn = kCodeLines < kCodes >> 0 ? kCodeLines<kCodes> : 1, kBlock = kCodeBlockBytes<kCodes>;
  const int block = offset / kBlock * kBlock, line = offset % kBlock / 64, i = line / kOwn;
  return block + (line % kOwn * 4 + i) * 64 + (offset % 64 ^ i / 2 * 32);
}
// A lane's codes of block `block` of a panel that lies there like this.
template <Codes kCodes>
DEVICE void load_swizzled(Shared<const uint8_t> panel, int block, CodeWords<kCodes>& to) {
  const int g = lane() / 4, i = lane() % 4;
  if constexpr (kCodeLines < kCodes >> 0) {
    const auto own = panel + (64 * i + (8 * g ^ i / 2 * 32));
    UNROLL
    for (int line = 0; line < kCodeLines<kCodes>; ++line) {
      const Words<2> words = load<2>(own + (block * kCodeBlockBytes<kCodes> + 256 * line));
      to.w[2 * line] = words.w[0], to.w[2 * line + 1] = words.w[1];
    }
  } else {
    load_codes<kCodes, false>(panel + block * kCodeBlockBytes<kCodes>, to);
  }
}

}  // namespace quire::cuda
