// Plans of types as JSON files, which a person can read and change.
//
//   {"format": "quire-types-of-tensors", "version": 1,
//    "bits_per_weight": 4.497, "divergence": 0.0713, "elements": 134515008, "other_bytes": 140544,
//    "text": "wiki.txt", "chunks": 4, "context": 256,
//    "groups": [{"name": "blk.0 attn_q, attn_k", "tensors": ["blk.0.attn_q.weight", "blk.0.attn_k.weight"],
//                "type": "IQ4_NL", "elements": 442368,
//                "choices": [{"type": "IQ4_NL", "bytes": 248832, "error": 12.5, "divergence": 0.0011, "measured": true}]}]}
//
// A reader needs "format", "version", and of each group "tensors" and "type"; what is written besides says why, and lets
// allocate_bits() choose again for another target.
#pragma once

#include <filesystem>

#include "quantize/allocation/allocation.h"

namespace quire {

// Writes `path` all at once. Throws Error: it cannot be written.
void write_allocation(const Allocation& allocation, const std::filesystem::path& path);

// Groups without "choices" get the chosen type as their only choice, of 0 bytes: see has_choices(). Throws Error naming
// the file and the field: no such file, not such a plan, an unknown type, a tensor that is named twice, a number out of
// range, a type that is not among its choices.
Allocation read_allocation(const std::filesystem::path& path);

// Whether allocate_bits() can choose again: all groups have choices with sizes, and the sizes of the model are known.
bool has_choices(const Allocation& allocation);

}  // namespace quire
