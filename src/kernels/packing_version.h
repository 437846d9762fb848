// The version of packed bytes.
#pragma once

namespace quire {

// Increase this when packing, or a reader of blocks (quant/) or codes (model/quantized/), gives other bytes: files of
// packed matrices are then made again (model/packing).
inline constexpr int kPackingVersion = 3;

}  // namespace quire
