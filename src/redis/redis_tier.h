// Pages on a Redis or Valkey server.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "kv/page_file.h"
#include "kv/page_tier.h"
#include "redis/redis_connection.h"

namespace quire {

struct RedisTierOptions {
  RedisUrl server;
  size_t page_bytes = 0;
  std::string identity;  // what a page's bytes depend on (PageStoreOptions)
  // Receives at most two warnings a minute; may be empty.
  std::function<void(const std::string&)> warn;
  std::chrono::milliseconds timeout{1000};  // of each operation
};

// A page is the value of the key "quire:" and the name of its file (PageFileName); the value is the file's content. The
// server evicts pages: configure `maxmemory` with the policy allkeys-lru.
//
// After an error (the server is gone, slow, or replies nonsense) the connection is closed, and until refresh() has opened
// another, everything is a miss. So a server that does not answer takes one time-out of the store's thread at each refresh.
class RedisTier : public PageTier {
 public:
  explicit RedisTier(RedisTierOptions options);  // warns if the server cannot be reached

  bool find(PageKey key) override;
  bool is_shared() const override { return true; }
  bool answers() const override { return up_; }
  bool accepts() const override;
  Stats stats() const override;

  void look_for(std::span<const PageKey> keys) override;
  void prefetch(PageKey key) override;  // sends the command
  bool read(PageKey key, std::span<std::byte> page) override;
  bool write(PageKey key, std::span<const std::byte> page) override;
  void refresh() override;

 private:
  using Known = std::list<PageKey>;

  std::string name(PageKey key) const;
  Deadline deadline() const { return std::chrono::steady_clock::now() + options_.timeout; }
  void connect();
  // Runs an operation that needs the connection. false: there is none, or the operation has thrown an Error.
  template <class Operation>
  bool attempt(Operation operation);
  void leave_expected();
  void give_up(const char* why);
  void refuse(std::string_view reply);
  void warn(const std::string& text) const;
  void learn(PageKey key);
  void forget(PageKey key);
  void count(uint64_t Stats::*what, uint64_t more = 1);

  const RedisTierOptions options_;
  const uint64_t identity_;
  std::unique_ptr<RedisConnection> connection_;  // null: the server does not answer
  std::deque<PageKey> expected_;                 // pages whose replies are still to come
  std::atomic<bool> up_{false};
  std::atomic<int64_t> suspended_until_{0};  // writing; steady clock, ns
  std::chrono::steady_clock::time_point next_warning_{};
  bool warned_down_ = false, warned_refused_ = false, warned_damaged_ = false;
  std::string content_;  // of a page being written

  mutable std::mutex mutex_;  // guards the following
  Known order_;               // pages that the server has, as far as is known; the last used first
  std::unordered_map<PageKey, Known::iterator, PageKeyHash> known_;
  Stats stats_;
};

}  // namespace quire
