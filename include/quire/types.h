// Ids. Types that must not be mixed up do not convert into each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire {

// An index into the vocabulary. A plain integer: token ids index logits and embedding rows everywhere, so the compiler
// does not keep them apart from other integers.
using TokenId = int32_t;
inline constexpr TokenId kNoToken = -1;

using TokenIds = std::vector<TokenId>;

// How the final hidden states of a prompt become one vector.
enum class Pooling : uint8_t {
  kNone,   // they do not: the request wants an answer
  kMean,   // the mean over all tokens
  kLast,   // that of the last token
  kFirst,  // that of the first token ([CLS] of BERT)
};

// How a classifier's results become the score of a pair of texts.
enum class Score : uint8_t {
  kRaw,      // the first result
  kSigmoid,  // its sigmoid
  kYesNo,    // the probability of the first of two answers, by softmax
};

// How far loading a model is, in bytes of the packed weights.
struct LoadProgress {
  enum class Stage : uint8_t {
    kPacking,   // into the layout of the kernels
    kChecking,  // a file of the pack cache
    kSaving,    // to the pack cache
    kTuning,    // measuring loops; in steps, not bytes
  } stage;
  size_t done, total;
};

// Returned by Engine::submit, ascending in the order of submission.
enum class RequestId : uint64_t {};

}  // namespace quire
