// Which kernel computes a call of attention, and how its queries are cut into tiles.
#pragma once

#include <cstddef>
#include <optional>

#include "cuda/device.h"
#include "cuda/kernels/attention_call.h"
#include "cuda/kernels/attention_plain.h"
#include "cuda/kernels/attention_tiles.h"
#include "cuda/kernels/attention_wide.h"

namespace quire::cuda {

// A kernel of kernels/attention_tiles.h, or the plain one.
struct AttentionShape {
  int tiles = 1, slices = 4;  // of 16 queries; warps of each
  int key_steps = 0;          // most steps of a key: with slices 1
  int groups = 1;             // most groups of values of a warp
  bool plain = false;
  bool wide = false;  // kernels/attention_wide.h
  AttentionPlaces places{};
  int shared_bytes = 0;

  int queries() const { return 16 * tiles; }
};

// For spans of few queries, and of many (the same, if no larger tile fits).
struct AttentionShapes {
  AttentionShape few, many;
};
// Throws Error (kInvalid): the device has too little for this cache.
AttentionShapes attention_shapes(const KvPages& kv, const DeviceFacts& facts);

}  // namespace quire::cuda
