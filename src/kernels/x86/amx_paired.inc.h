// Products of weights in groups with a scale, on matrix tiles: two panels at a time (LinearLoop::Kind::kPaired).
#pragma once

#include "kernels/x86/amx_groups.inc.h"

namespace quire::QUIRE_ISA {
namespace {

inline constexpr int kMostTogether = 4;

// Memory of a call.
struct alignas(64) PairMemory {
  std::byte weights[2][kChunk][2 * kBlockInputs * kPanel];  // each panel's, decoded
  float scales[2][2][kChunk * 2][kPanel];                   // each panel's, for two chunks: [blocks * groups]
  std::byte sums[2][kMostTogether][4][kRowGroup * kPanel * 4];
  float unused[kRowGroup * kPanel];  // sums of a panel or a group of rows that does not exist
};

// Two panels by two groups of rows over a chunk of decoded blocks: each tile that is loaded serves two products. Sums of
// kTogether groups are scaled and added at once, in the order of K, while the next are multiplied: an accumulator is
// loaded and stored once for so many products.
template <class P, int kTogether>
class Quad {
 public:
  Quad(Tiles& tiles, PairMemory& memory, const Region& region, int panel, int group)
      : tiles_(tiles),
        memory_(memory),
        row_stride_(P::row_stride(region.x_stride)),
        count_((region.block_end - region.block_begin) * kGroups) {
    for (int i = 0; i < 2; ++i) {
      const int g = group + i < region.groups() ? group + i : group;
      x_[i] = region.inputs<typename P::Inputs>(g);
      for (int j = 0; j < 2; ++j) {
        const bool exists = group + i < region.groups() && panel + j < region.panel_end;
        acc_[2 * i + j] = exists ? region.sums(panel + j, g) : memory.unused;
      }
    }
  }

  void multiply() {
    int group = 0, slot = 0;
    const int whole = count_ / kTogether * kTogether;
    for (; group < whole; group += kTogether, slot ^= 1) {
      group == 0 ? step<kTogether, 0>(group, slot) : step<kTogether, kTogether>(group, slot);
    }
    for (; group < count_; ++group, slot ^= 1) {
      group == 0 ? step<1, 0>(group, slot) : group == whole ? step<1, kTogether>(group, slot) : step<1, 1>(group, slot);
    }
    for (int tile = 0; tile < 4; ++tile) {
      if (whole == count_) {
        add_sums<kTogether>(count_ - kTogether, slot ^ 1, tile, 0, kRowGroup);
      } else {
        add_sums<1>(count_ - 1, slot ^ 1, tile, 0, kRowGroup);
      }
    }
  }

 private:
  static constexpr int kGroups = kBlockInputs / P::kGroup;

  const std::byte* weights(int panel, int group) const {
    return memory_.weights[panel][group / kGroups] + group % kGroups * P::kGroup * kPanel * P::kInputBytes;
  }
  const void* inputs(int of, int group) const {
    return P::inputs(x_[of][group / kGroups], group % kGroups * P::kGroup);
  }

  // The products of kCount groups from `group` on, and the additions of the kBefore groups before them.
  template <int kCount, int kBefore>
  [[gnu::always_inline]] void step(int group, int slot) {
    QUIRE_UNROLL
    for (int i = 0; i < kCount; ++i) {
      auto& sums = memory_.sums[slot][i];
      const auto add_part = [&](int tile) __attribute__((always_inline)) {
        if constexpr (kBefore > 0)
          add_sums<kBefore>(group - kBefore, slot ^ 1, tile, i * kRowGroup / kCount, (i + 1) * kRowGroup / kCount);
      };
      tiles_.zero<0>();
      tiles_.load<4>(inputs(0, group + i), row_stride_);
      tiles_.load<6>(weights(0, group + i), 64);
      P::template dot<0, 4, 6>(tiles_);
      add_part(0);
      tiles_.zero<1>();
      tiles_.load<7>(weights(1, group + i), 64);
      P::template dot<1, 4, 7>(tiles_);
      add_part(1);
      tiles_.zero<2>();
      tiles_.load<5>(inputs(1, group + i), row_stride_);
      P::template dot<2, 5, 6>(tiles_);
      tiles_.store<0>(sums[0], 64);
      add_part(2);
      tiles_.zero<3>();
      P::template dot<3, 5, 7>(tiles_);
      tiles_.store<1>(sums[1], 64);
      add_part(3);
      tiles_.store<2>(sums[2], 64);
      tiles_.store<3>(sums[3], 64);
    }
  }

  // Rows [begin, end) of a tile.
  template <int kCount>
  [[gnu::always_inline]] void add_sums(int group, int slot, int tile, int begin, int end) {
    Floats scales[kCount];
    QUIRE_UNROLL
    for (int i = 0; i < kCount; ++i) scales[i] = Floats::load(memory_.scales[tile % 2][0][group + i]);
    float* const acc = acc_[tile];
#pragma GCC unroll 16
    for (int r = begin; r < end; ++r) {
      Floats sum = Floats::load(acc + r * kPanel);
      QUIRE_UNROLL
      for (int i = 0; i < kCount; ++i) {
        const auto* block = reinterpret_cast<const std::byte*>(x_[tile / 2] + (group + i) / kGroups);
        sum = P::add_scaled(memory_.sums[slot][i][tile] + 64 * r, scales[i],
                            reinterpret_cast<const typename P::Inputs*>(block + static_cast<size_t>(r) * row_stride_),
                            sum);
      }
      store(acc + r * kPanel, sum);
    }
  }

  Tiles& tiles_;
  PairMemory& memory_;
  const typename P::Inputs* x_[2];
  float* acc_[4];  // [groups of rows][panels]
  const size_t row_stride_;
  const int count_;  // groups of weights
};

template <class P, int kTogether>
[[gnu::noinline]] void multiply_quad(Tiles& tiles, PairMemory& memory, const Region& region, int panel, int group) {
  Quad<P, kTogether>(tiles, memory, region, panel, group).multiply();
}

// More than one group of rows, over a chunk of at most kChunk blocks.
template <class P, Codes kCodes>
void multiply_quads(const Region& region) {
  alignas(64) PairMemory memory;
  __builtin_memset(memory.unused, 0, sizeof memory.unused);
  const PackedMatrix& m = region.m;
  const TileDecoder decoder(m.format);
  Tiles tiles({kRowGroup, P::kGroup * P::kInputBytes});
  auto* multiply = region.loop.panels >= 4   ? multiply_quad<P, 4>
                   : region.loop.panels >= 2 ? multiply_quad<P, 2>
                                             : multiply_quad<P, 1>;
  const int blocks = region.block_end - region.block_begin;
  for (int p = region.panel_begin; p < region.panel_end; p += 2) {
    for (int i = 0; i < 2; ++i) {
      const int panel = p + i < region.panel_end ? p + i : p;
      decode_scales(m, panel, region.block_begin, region.block_end, memory.scales[i][0][0]);
      const Decode<P, kCodes> decode(m, panel, decoder);
      for (int b = 0; b < blocks; ++b) {
        const std::byte* next = m.panel(panel + 2) + m.layout.codes +
                                static_cast<size_t>(region.block_begin + b) * code_block_bytes(kCodes);
        for (size_t at = 0; at < code_block_bytes(kCodes); at += 64)
          _mm_prefetch(reinterpret_cast<const char*>(next + at), _MM_HINT_T1);
        decode(region.block_begin + b, memory.weights[i][b]);
      }
    }
    for (int g = 0; g < region.groups(); g += 2) multiply(tiles, memory, region, p, g);
  }
}

// Up to 16 rows by two panels, of which the first kRows rows count, over all of K. A software pipeline: decoding,
// product, store, and scaled addition are one block apart, so that none waits for another.
template <class P, Codes kCodes, int kRows>
void multiply_pair(Tiles& tiles, PairMemory& memory, const TileDecoder& decoder, const Region& region, int p) {
  static_assert(P::kGroup == kBlockInputs);
  const PackedMatrix& m = region.m;
  const Decode<P, kCodes> from[] = {{m, p, decoder}, {m, p + 1, decoder}};
  const auto* x = region.inputs<typename P::Inputs>(0);
  const size_t row_stride = P::row_stride(region.x_stride);
  const int blocks = region.block_end;
  auto prefetch = Prefetch<2>::ahead(m, p, blocks, region.loop.ahead);
  Floats acc[2][kRows];
  for (auto& of_panel : acc) {
#pragma GCC unroll 16
    for (Floats& sum : of_panel) sum = Floats::all(0.0f);
  }
  const auto decode = [&](int b) __attribute__((always_inline)) {
    if (b >= blocks) return;
    prefetch.next();
    QUIRE_UNROLL
    for (int i = 0; i < 2; ++i) {
      if (b % kChunk == 0)
        decode_scales(m, p + i, b, b + kChunk < blocks ? b + kChunk : blocks, memory.scales[i][b / kChunk % 2][0]);
      from[i](b, memory.weights[i][b % 2]);
    }
  };
  const auto add_block = [&](int b) __attribute__((always_inline)) {
    QUIRE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const Floats scale = Floats::load(memory.scales[i][b / kChunk % 2][b % kChunk]);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const auto* block = reinterpret_cast<const std::byte*>(x + b) + static_cast<size_t>(r) * row_stride;
        acc[i][r] = P::add_scaled(memory.sums[b % 2][0][i] + 64 * r, scale,
                                  reinterpret_cast<const typename P::Inputs*>(block), acc[i][r]);
      }
    }
  };
  const auto turn = [&]<int kTurn>(int b) __attribute__((always_inline)) {
    if (b < blocks) {
      tiles.load<4 + kTurn>(P::inputs(x[b], 0), row_stride);
      tiles.zero<2 * kTurn>();
      tiles.load<6>(memory.weights[0][kTurn], 64);
      P::template dot<2 * kTurn, 4 + kTurn, 6>(tiles);
      tiles.zero<2 * kTurn + 1>();
      tiles.load<7>(memory.weights[1][kTurn], 64);
      P::template dot<2 * kTurn + 1, 4 + kTurn, 7>(tiles);
    }
    decode(b + 1);
    if (b >= 2) add_block(b - 2);
    if (b >= 1 && b <= blocks) {
      tiles.store<2 - 2 * kTurn>(memory.sums[1 - kTurn][0][0], 64);
      tiles.store<3 - 2 * kTurn>(memory.sums[1 - kTurn][0][1], 64);
    }
  };
  decode(0);
  for (int b = 0; b < blocks + 2; b += 2) {
    turn.template operator()<0>(b);
    if (b + 1 < blocks + 2) turn.template operator()<1>(b + 1);
  }
  QUIRE_UNROLL
  for (int i = 0; i < 2; ++i) {
    float* sums = region.sums(p + i, 0);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) store(sums + r * kPanel, acc[i][r]);
  }
}

// Weights whose blocks are groups, and that are usual enough for loops of their own for few rows.
constexpr bool has_pairs(Codes codes, int group) {
  return group == kBlockInputs && (codes == Codes::kU4 || codes == Codes::kI8 || codes == Codes::kTable4);
}

// A single group of rows. The last panel of an odd number is multiplied alone.
template <class P, Codes kCodes>
void multiply_pairs(TileMemory& alone, const Region& region) {
  alignas(64) PairMemory memory;
  for (int i = 0; i < 2; ++i)  // rows that tiles do not store
    __builtin_memset(memory.sums[i][0][0], 0, 2 * sizeof memory.sums[i][0][0]);
  const int rows = region.rows;
  const TileDecoder decoder(region.m.format);
  {
    Tiles tiles({rows, P::kGroup * P::kInputBytes});
    auto* multiply = multiply_pair<P, kCodes, 16>;
    if constexpr (P::kInputBytes == 2)
      if (rows <= 4) multiply = multiply_pair<P, kCodes, 4>;
    if (rows > 4 && rows <= 8) multiply = multiply_pair<P, kCodes, 8>;
    for (int p = region.panel_begin; p + 1 < region.panel_end; p += 2) multiply(tiles, memory, decoder, region, p);
  }
  if ((region.panel_end - region.panel_begin) % 2 != 0) {
    Region last = region;
    last.panel_begin = region.panel_end - 1;
    last.acc = region.sums(last.panel_begin, 0);
    multiply_groups<P, kCodes>(alone, last);
  }
}

}  // namespace
}  // namespace quire::QUIRE_ISA
