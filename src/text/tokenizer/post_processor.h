// The post-processor of a tokenizer.json: the tokens that a model expects around a text, or around two texts.
#pragma once

#include <cstdint>

#include "json/field.h"
#include "quire/types.h"
#include "text/tokenizer/pair.h"

namespace quire {

inline constexpr int64_t kMostTokens = int64_t{1} << 22;  // in a vocabulary

struct AroundText {
  TokenIds prefix, suffix;
  PairTemplate pair;
};

// Throws Error naming the field: kInvalid if it is broken, kUnsupported if Quire lacks the component. A template for
// pairs that is unsupported is no error: only encoding a pair needs it (PairTemplate::missing).
AroundText read_hf_post_processor(const JsonField& field);

}  // namespace quire
