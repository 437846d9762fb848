#include "cuda/attention/attention_shapes.h"

#include <algorithm>
#include <string>

#include "kernels/kernels.h"
#include "quire/error.h"

namespace quire::cuda {
namespace {

int up_to(int bytes, int alignment) { return (bytes + alignment - 1) / alignment * alignment; }

// The places in shared memory of a kernel that has these slots; false if they do not fit.
bool fit(const KvPages& kv, int stages, int limit, AttentionShape& shape) {
  const bool codes = has_codes(kv.type);
  const int key = padded_head(kv.key_dim), value = padded_head(kv.value_dim);
  const int threads = 32 * shape.tiles * shape.slices;
  AttentionPlaces& at = shape.places;
  int used = 0;
  const auto take = [&used](int bytes) {
    const int place = used;
    used += up_to(bytes, 128);
    return place;
  };
  at.stages = stages;
  at.key_page = kv.values_offset + static_cast<int>(2 * kPageTokens * kv_scale_bytes(kv.type));
  at.value_page = kv.scales_offset - kv.values_offset;
  at.totals = take(shape.groups * 4 * threads * 16);
  at.turned = used;
  at.weights = take(shape.slices == 1 ? 0 : shape.tiles * 2048);
  at.sums = take(shape.slices == 1 ? 0 : shape.tiles * shape.slices * 64);
  at.tile = take(codes ? kBlockTokens * 2 * std::max(key, value) : 0);
  at.keys = take(stages * kBlockPages * at.key_page);
  at.values = take(stages * kBlockPages * at.value_page);
  // Turned queries lie at the beginning, until their words have been packed. Results are turned back after the totals.
  const bool turns = rotates_heads(kv.type);
  if (turns) used = std::max(used, shape.queries() * key * 4);
  at.queries = take(shape.slices == 1 ? 0 : shape.tiles * key / 16 * 512);
  if (turns) used = std::max(used, at.turned + shape.queries() * value * 4);
  shape.shared_bytes = used;
  return used <= limit;
}

}  // namespace

AttentionShapes attention_shapes(const KvPages& kv, const DeviceFacts& facts) {
  AttentionShapes shapes;
  const int key = padded_head(kv.key_dim), value = padded_head(kv.value_dim);
  AttentionShape& few = shapes.few;
  const int groups = ((value + 31) / 32 + 3) / 4;
  few.groups = groups <= 2 ? groups : groups <= 4 ? 4 : 5;
  const auto fit_any = [&](int most_stages, AttentionShape& shape) {
    for (int stages = most_stages; stages > 0; --stages) {
      if (fit(kv, stages, facts.shared_bytes, shape)) return true;
    }
    return false;
  };
  if (!multiplies_bf16(kv.type) || !fit_any(2, few)) {
    if (rotates_heads(kv.type))
      throw Error(ErrorKind::kInvalid,
                  "this GPU's shared memory is too small for attention over an int4 cache with heads of " +
                      std::to_string(kv.key_dim) + " numbers; choose another type by --kv-cache-dtype");
    few = {.plain = true, .shared_bytes = AttendPlain::kFloats * 4};
    shapes.many = few;
    return shapes;
  }
  shapes.many = few;
  AttentionShape many;
  if (key <= 128 && value <= 128) {
    const bool small = key <= 64 && value <= 64;
    many = {.tiles = 8, .slices = 1, .key_steps = small ? 4 : 8, .groups = small ? 2 : 4};
    const int wide_bytes = small ? AttendWide<4, 2>::kSharedBytes : AttendWide<8, 4>::kSharedBytes;
    if (facts.major == 9 && kv.type == KvType::kBf16 && wide_bytes <= facts.shared_bytes) {
      many.wide = true;
      many.shared_bytes = wide_bytes;
      shapes.many = many;
      return shapes;
    }
  } else {
    many = {.tiles = 2, .slices = 4, .groups = few.groups};
  }
  if (fit_any(3, many)) shapes.many = many;
  return shapes;
}

}  // namespace quire::cuda
