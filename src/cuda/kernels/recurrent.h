// The recurrences of GatedDeltaArgs and Mamba2Args (kernels/recurrent.h) over the rows of spans. A block has 32 columns of
// one head's state in registers while it goes through a span's rows.
//
// A warp has 8 columns: lanes 0 to 15 four of them, lanes 16 to 31 the other four. Each of the 16 lanes has kLaneKeys of the
// state's rows ("keys"): key i of lane p is i / 4 * 64 + 4 p + i % 4, so that a lane reads four neighbouring numbers of a
// row's key at once. A sum over the keys is a chain over a lane's keys, then a tree over 16 lanes: its order depends on the
// state's shape alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/nonlinearity.h"
#include "cuda/kernels/normalize.h"
#include "cuda/kernels/row_access.h"
#include "cuda/kernels/short_conv.h"
#include "cuda/kernels/unroll.h"

namespace quire::cuda {

// What the delta rule needs of each row before the recurrence: unit lengths of queries and keys, exp(gate) in the place of
// `decay`, and sigmoid(beta). A warp for each key head's query, for its key, and for the row's gates. Grid: x: so many warps
// / 4, rounded up.
struct PrepareDelta {
  static constexpr const char* kName = "prepare_delta";
  using Normalize = NormalizeRows<32>;
  static constexpr int kThreads = Normalize::kThreads;
  static constexpr int kWarps = kThreads / 32;
  Normalize q, k;
  RowsAt<float> decay, beta;  // [rows, heads]
  Global<const float> factor, bias;
  int heads;
  int unused = 0;

  DEVICE void operator()() const {
    const int item = block_x() * kWarps + warp(), norms = q.rows * q.groups;
    if (item < norms) return q.run(item);
    if (item < 2 * norms) return k.run(item - norms);
    const int row = item - 2 * norms;
    if (row >= q.rows) return;
    for (int head = lane(); head < heads; head += 32) {
      const float gate = softplus_lane(decay.row(row)[head] + bias[head]) * factor[head];
      decay.row(row)[head] = exp_lane(gate);
      beta.row(row)[head] = sigmoid_lane(beta.row(row)[head]);
    }
  }
};

// x = softplus(x + bias), by ForColumns.
struct SoftplusRows {
  static constexpr const char* kName = "softplus_rows";
  RowsAt<float> x;
  Global<const float> bias;  // [cols]

  DEVICE void run(int row, int col, int count, bool aligned) const {
    Four y = load_four(x.row(row) + col, count, aligned);
    const Four more = load_four(bias + col, count, aligned);
    UNROLL
    for (int i = 0; i < 4; ++i) y.v[i] = softplus_lane(y.v[i] + more.v[i]);
    store_four(x.row(row) + col, y, count, aligned);
  }
};

enum class Recurrence : uint8_t {
  kDelta,       // keys, queries: normalized; first: exp(gate), second: beta
  kStateSpace,  // keys: b, queries: c; first: dt
};

// Grid: x: spans, y: heads * (cols / kCols, rounded up). Shared memory: kSharedBytes.
template <Recurrence kRecurrence, int kLaneKeys>
struct RecurRows {
  static constexpr bool kDelta = kRecurrence == Recurrence::kDelta;
  static constexpr const char* kName = kDelta ? "delta_rule" : "state_space";
  static constexpr int kThreads = 128;
  static constexpr int kCols = 32;
  static constexpr int kKeys = 16 * kLaneKeys;  // at most; keys that a state does not have are zeros

  // Rows are copied to shared memory 8 at a time, while the 8 before are done.
  static constexpr int kStagedRows = 8;
  static constexpr int kQueriesAt = kStagedRows * kKeys, kValuesAt = 2 * kQueriesAt,
                       kFirstAt = kValuesAt + kStagedRows * kCols, kSecondAt = kFirstAt + kStagedRows,
                       kStage = kSecondAt + kStagedRows;  // numbers
  static constexpr int kSharedBytes = 2 * kStage * 4;

  StatesAt states;
  RowsAt<const float> keys, queries;  // [rows, key heads * key_dim]
  RowsAt<float> values;               // [rows, heads * cols]; overwritten by the results
  RowsAt<const float> first, second;  // [rows, heads]
  Global<const float> a, d;           // [heads]; only for kStateSpace
  size_t matrices_at;                 // in a state
  int key_dim, cols, heads;
  int key_heads;
  Flag interleaved;     // head h uses key head h % key_heads, not h / (heads / key_heads)
  Flag keys_aligned;    // each head's keys and queries start at multiples of 16 bytes, and key_dim is a multiple of 4
  Flag values_aligned;  // each head's values do, and so does each row of its state
  int unused = 0;

  // What a thread works on.
  struct Place {
    int head, key_head;
    int tile_col;   // of the block, in the head
    int group_col;  // of the 16 lanes, in the block
    int part;       // which of the 16 lanes
  };

  // Starts the copy of rows [row, row + kStagedRows) of the span to a stage.
  DEVICE void stage_rows(const Place& at, const PlacedSpan& span, int row, int stage) const {
    const Shared<float> to = shared<float>(static_cast<size_t>(stage * kStage) * sizeof(float));
    const int count = span.rows - row < kStagedRows ? span.rows - row : kStagedRows;
    constexpr int kRowFours = kKeys / 4, kTileFours = kCols / 4;
    for (int i = thread(); i < count * kRowFours; i += kThreads) {
      const int r = i / kRowFours, key = i % kRowFours * 4, row_at = span.row + row + r;
      const auto from = static_cast<size_t>(at.key_head * key_dim + key);
      copy_four(to + r * kKeys + key, keys.row(row_at) + from, key_dim - key, keys_aligned);
      copy_four(to + kQueriesAt + r * kKeys + key, queries.row(row_at) + from, key_dim - key, keys_aligned);
    }
    for (int i = thread(); i < count * kTileFours; i += kThreads) {
      const int r = i / kTileFours, col = i % kTileFours * 4, of_head = at.tile_col + col;
      const Global<const float> from = values.row(span.row + row + r) + static_cast<size_t>(at.head * cols + of_head);
      copy_four(to + kValuesAt + r * kCols + col, from, cols - of_head, values_aligned);
    }
    if (thread() < count) {
      copy_async<4>(to + kFirstAt + thread(), first.row(span.row + row + thread()) + at.head);
      if (kDelta) copy_async<4>(to + kSecondAt + thread(), second.row(span.row + row + thread()) + at.head);
    }
  }

  // The first `count` numbers, then zeros.
  static DEVICE void copy_four(Shared<float> to, Global<const float> from, int count, bool aligned) {
    if (aligned) {
      copy_async<16>(to, from, count > 0);
      return;
    }
    UNROLL
    for (int i = 0; i < 4; ++i) copy_async<4>(to + i, from + i, i < count);
  }

  static DEVICE Four read_shared(Shared<float> p) {
    const Words<4> words = load<4>(p);
    Four four;
    UNROLL
    for (int i = 0; i < 4; ++i) four.v[i] = bits_float(words.w[i]);
    return four;
  }

  // The sums over 16 lanes of four columns: each lane gets the one of column part / 4.
  static DEVICE float sum_keys(const float (&of_lane)[4], int part) {
    const bool high = (part & 8) != 0, odd = (part & 4) != 0;
    const float pair[2] = {
        (high ? of_lane[2] : of_lane[0]) + shuffle_xor(high ? of_lane[0] : of_lane[2], 8),
        (high ? of_lane[3] : of_lane[1]) + shuffle_xor(high ? of_lane[1] : of_lane[3], 8),
    };
    float sum = (odd ? pair[1] : pair[0]) + shuffle_xor(odd ? pair[0] : pair[1], 4);
    sum += shuffle_xor(sum, 2);
    sum += shuffle_xor(sum, 1);
    return sum;
  }

  // A row whose results are not yet summed over the lanes. That takes longer than all arithmetic of a row, so it is left for
  // the time when the next row waits for its own sums.
  struct Unfinished {
    float results[4] = {};
    float x = 0;  // of column part / 4
  };

  // The result of column part / 4.
  DEVICE float finish(const Unfinished& row, const Place& at) const {
    const float result = sum_keys(row.results, at.part);
    return kDelta ? result : fma_of(d[at.head], row.x, result);
  }

  // Begins a row and finishes the one before it, whose result it returns.
  DEVICE float do_row(float (&s)[kLaneKeys][4], Unfinished& unfinished, const Place& at, Shared<float> stage,
                      int row) const {
    const Shared<float> key_row = stage + row * kKeys + at.part * 4, query_row = key_row + kQueriesAt;
    const Shared<float> value = stage + kValuesAt + row * kCols + at.group_col;
    const float before = stage[kFirstAt + row];
    float change[4];  // what each column adds, times the key
    float decay = before, result_before;
    if constexpr (kDelta) {
      float recalled[4] = {};
      UNROLL
      for (int i = 0; i < kLaneKeys; i += 4) {
        const Four k = read_shared(key_row + i * 16);
        UNROLL
        for (int j = 0; j < 4; ++j) {
          UNROLL
          for (int c = 0; c < 4; ++c) {
            s[i + j][c] *= decay;
            recalled[c] = fma_of(s[i + j][c], k.v[j], recalled[c]);
          }
        }
      }
      const float sum = sum_keys(recalled, at.part);
      result_before = finish(unfinished, at);
      const float delta = stage[kSecondAt + row] * (value[at.part / 4] - sum);
      UNROLL
      for (int c = 0; c < 4; ++c) change[c] = shuffle(delta, (lane() & 16) + 4 * c);
    } else {
      result_before = finish(unfinished, at);
      decay = exp_lane(before * a[at.head]);
      const Four x = read_shared(value);
      UNROLL
      for (int c = 0; c < 4; ++c) change[c] = before * x.v[c];
    }
    unfinished = {};
    UNROLL
    for (int i = 0; i < kLaneKeys; i += 4) {
      const Four k = read_shared(key_row + i * 16), q = read_shared(query_row + i * 16);
      UNROLL
      for (int j = 0; j < 4; ++j) {
        UNROLL
        for (int c = 0; c < 4; ++c) {
          float& number = s[i + j][c];
          number = fma_of(k.v[j], change[c], kDelta ? number : decay * number);
          unfinished.results[c] = fma_of(number, q.v[j], unfinished.results[c]);
        }
      }
    }
    if constexpr (!kDelta) unfinished.x = value[at.part / 4];
    return result_before;
  }

  // f(key, the four numbers of the lane) for each of its keys.
  template <class F>
  DEVICE void for_keys(float (&s)[kLaneKeys][4], const Place& at, const F& f) const {
    UNROLL
    for (int i = 0; i < kLaneKeys; ++i) {
      const int key = i / 4 * 64 + at.part * 4 + i % 4;
      if (key < key_dim) f(key, s[i]);
    }
  }

  DEVICE void operator()() const {
    const int tiles = (cols + kCols - 1) / kCols;
    Place at{};
    at.head = block_y() / tiles;
    at.key_head = interleaved ? at.head % key_heads : at.head / (heads / key_heads);
    at.tile_col = block_y() % tiles * kCols;
    at.group_col = warp() * 8 + lane() / 16 * 4;
    at.part = lane() % 16;
    const PlacedSpan span = states.spans[block_x()];
    stage_rows(at, span, 0, 0);
    commit_copies();

    const int col = at.tile_col + at.group_col;  // of the lane's four, in the head
    const size_t matrix_at = matrices_at + static_cast<size_t>(at.head) * static_cast<size_t>(key_dim * cols) + col;
    float s[kLaneKeys][4] = {};
    if (span.position != 0) {
      const Global<float> state = states.of(span.slot) + matrix_at;
      for_keys(s, at, [&](int key, float(&numbers)[4]) {
        const Four four = load_four(state + static_cast<size_t>(key * cols), cols - col, values_aligned);
        UNROLL
        for (int c = 0; c < 4; ++c) numbers[c] = four.v[c];
      });
    }
    const auto keep = [&](Global<float> slot) {
      for_keys(s, at, [&](int key, float(&numbers)[4]) {
        const Four four{{numbers[0], numbers[1], numbers[2], numbers[3]}};
        store_four(slot + matrix_at + static_cast<size_t>(key * cols), four, cols - col, values_aligned);
      });
    };

    const auto write = [&](int row, float result) {
      const int result_col = col + at.part / 4;
      if (at.part % 4 == 0 && result_col < cols)
        values.row(span.row + row)[static_cast<size_t>(at.head * cols + result_col)] = result;
    };

    StatesAt::Copies copies = states.copies_of(span);
    Unfinished unfinished;
    for (int done = 0, stage = 0; done < span.rows; done += kStagedRows, stage ^= 1) {
      if (done + kStagedRows < span.rows) stage_rows(at, span, done + kStagedRows, stage ^ 1);
      commit_copies();
      wait_copies<1>();
      sync_block();
      const Shared<float> rows = shared<float>(static_cast<size_t>(stage * kStage) * sizeof(float));
      for (int i = 0; i < kStagedRows && done + i < span.rows; ++i) {
        const float result_before = do_row(s, unfinished, at, rows, i);
        if (done + i > 0) write(done + i - 1, result_before);
        states.copy_after(done + i, copies, keep);
      }
      sync_block();  // before the next rows but one are copied to this stage
    }
    if (span.rows > 0) write(span.rows - 1, finish(unfinished, at));
    keep(states.of(span.slot));
  }
};

}  // namespace quire::cuda
