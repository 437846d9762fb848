// Which drafters the options name.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "quire/engine.h"

namespace quire {

// In the order of kDrafters.
enum class DrafterKind : uint8_t {
  kNgram,      // earlier in the sequence
  kCorpus,     // the user's corpus
  kRecent,     // the tenant's recent answers
  kLookahead,  // n-grams of the target's own guesses
  kDraft,      // a small model
  kEarlyExit,  // the target's first layers
  kMedusa,     // heads on the target's hidden states
  kEagle,      // a layer that predicts hidden states
  kMtp,        // the target's own layer for multi-token prediction
};
constexpr std::string_view name(DrafterKind kind) { return kDrafters[static_cast<size_t>(kind)]; }
// The choice of this drafter alone.
constexpr Speculation only(DrafterKind kind) {
  return static_cast<Speculation>(static_cast<int>(Speculation::kNgram) + static_cast<int>(kind));
}

struct NamedDrafters {
  std::vector<DrafterKind> texts;    // that look only at tokens
  std::optional<DrafterKind> model;  // that computes; auto: the first one that has its material, the target's own last
  bool any() const { return !texts.empty() || model; }
};
// None: speculation is off. has_mtp: the target's files have a layer for multi-token prediction. Throws Error if options
// contradict each other, or the drafter lacks its file.
NamedDrafters named_drafters(const EngineOptions& options, bool has_mtp);
inline bool speculates(const EngineOptions& options) { return options.speculative != Speculation::kOff; }

}  // namespace quire
