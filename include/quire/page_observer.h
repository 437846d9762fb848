// Hears which pages the prefix cache has.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "quire/types.h"

namespace quire {

// A full page that the prefix cache has gained. Views are valid during the call.
struct CachedPage {
  uint64_t hash = 0;                 // of its tokens and of everything before them
  std::optional<uint64_t> parent{};  // the hash of the page before it; none: it begins the prompt
  std::span<const TokenId> tokens;   // ModelInfo::page_tokens of them
  std::string_view adapter;          // that computed it; empty: the model itself
};

// Called by the engine's thread, at last by the one that destroys the engine; never by two at a time. Must not wait.
class PageObserver {
 public:
  virtual ~PageObserver() = default;
  virtual void stored(const CachedPage& page) noexcept = 0;
  virtual void removed(uint64_t hash) noexcept = 0;  // of a page that was stored
  virtual void step_ended() noexcept = 0;            // all of this step's pages have been told
  virtual void cleared() noexcept = 0;               // the engine ends, and all pages with it
};

}  // namespace quire
