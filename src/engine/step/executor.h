// Whoever computes: the only one who touches weights and cache.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "engine/step/forward.h"
#include "ops/cache_memory.h"

namespace quire {

// Carries out orders one after the other. Whether it computes on this thread, in another process or on a device, the
// results have the same bits. Failures throw: std::bad_alloc, or Error (kResource) if the executor is gone.
class Executor {
 public:
  virtual ~Executor() = default;

  // Starts a pass. `input` stays as it is until wait() has returned.
  virtual void launch(const ForwardInput& input) = 0;
  // The result of the launch() that was first, of those without a result.
  virtual const ForwardOutput& wait() = 0;
  // Whether a second pass may be launched before the first has a result: one of ForwardInput::picked, without changes of the cache.
  // launch() has then read the page tables of both when it returns.
  virtual bool runs_ahead() const { return false; }
  // Whether passes run while this thread does something else: launch() returns before they have ended.
  virtual bool computes_apart() const { return false; }
  // ... and read() and write() may be called meanwhile, for places that the pass does not write, or not use.
  virtual bool copies_meanwhile() const { return false; }
  // Whether it takes ForwardInput::picks, and gains by them.
  virtual bool picks_logits() const { return false; }
  // Changes the cache without a pass.
  virtual void commit(const CacheChanges& changes) = 0;
  // to [place.size]: its bytes.
  virtual void read(const CachePlace& place, std::span<std::byte> to) = 0;
  virtual void write(const CachePlace& place, std::span<const std::byte> bytes) = 0;

  // Why it can carry out nothing any more, whatever it is asked; empty: it can.
  virtual std::string_view lost() const { return {}; }
};

}  // namespace quire
