// Which of a server's models are loaded: loads a model when a request asks for it, makes room by unloading models that no
// request uses, and unloads those that nobody has asked for a while.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "server/api/keep_alive.h"

namespace quire {

enum class ModelState : uint8_t { kUnloaded, kLoading, kLoaded, kUnloading };
std::string_view name(ModelState state);  // unloaded, loading, loaded, unloading

// What the pool must know of a model. It calls load() and unload() in turns, on a thread of its own.
struct PooledModel {
  // Throws if the model cannot be loaded: Error of kind kResource if too little memory is free.
  std::function<void()> load = {};
  std::function<void()> unload = {};
  bool loaded = false;  // already
  bool pinned = false;  // stays loaded once it is
  KeepAlive keep_alive = {};
};

// Models are loaded one after the other, in the order in which they were asked for. If memory is short, the model that was
// used least recently leaves, first of those that no request uses. If all are in use, it takes no further requests, which
// wait until it is loaded again, and leaves with its last answer. So a busy model cannot keep others out. Thread-safe.
class ModelPool {
 public:
  using Clock = std::chrono::steady_clock;

  // A model stays loaded while this lives. The pool must outlive it.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)), model_(other.model_), uses_(other.uses_) {}
    Lease& operator=(Lease&& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(model_, other.model_);
      std::swap(uses_, other.uses_);
      return *this;
    }
    ~Lease() {
      if (pool_) pool_->release(model_, uses_);
    }
    explicit operator bool() const { return pool_ != nullptr; }

   private:
    friend class ModelPool;
    Lease(ModelPool& pool, size_t model, bool uses) : pool_(&pool), model_(model), uses_(uses) {}
    ModelPool* pool_ = nullptr;
    size_t model_ = 0;
    bool uses_ = true;
  };

  // Called once, on any thread: with a lease, or without one and with the reason. Must not throw.
  using Settled = std::function<void(Lease lease, std::exception_ptr failure)>;

  explicit ModelPool(std::vector<PooledModel> models);
  void add(PooledModel model);  // its index is the number of models before it
  // stop(), then unloads all models.
  ~ModelPool();
  ModelPool(const ModelPool&) = delete;
  ModelPool& operator=(const ModelPool&) = delete;

  // Ends loading and unloading, after what is under way. Who still waits, or will, gets no lease. Call once at most.
  void stop();

  ModelState state(size_t model) const;
  bool changing() const;  // a model is being loaded or unloaded, or is going to be loaded

  // Empty: the model is not loaded, or is about to leave.
  Lease try_acquire(size_t model);
  // The same for whoever only looks: it does not count as use of the model.
  Lease peek(size_t model);
  // Has the model loaded, if it is not.
  void acquire(size_t model, Settled settled);
  // Unloads the model, pinned or not, once nobody uses it. Later requests have it loaded again.
  void unload(size_t model);
  void set_keep_alive(size_t model, KeepAlive keep_alive);

 private:
  struct Entry {
    PooledModel model;
    size_t index;
    ModelState state = ModelState::kUnloaded;
    int users = 0;
    bool leaving = false;  // loaded, but takes no new users
    Clock::time_point last_used = Clock::now();
    std::vector<Settled> waiting = {};
  };
  using Lock = std::unique_lock<std::mutex>;

  Lease acquire_now(size_t model, bool uses);
  void release(size_t model, bool uses) noexcept;
  void run();
  void load_next(Lock& lock);
  bool make_room(Lock& lock);
  void unload(Lock& lock, Entry& entry);
  bool expired(const Entry& entry, Clock::time_point now) const;
  Entry* to_unload(Clock::time_point now);
  std::optional<Clock::time_point> next_expiry() const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;  // entries keep their places while others are added
  std::deque<size_t> orders_;  // models that are waited for and not being loaded yet
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace quire
