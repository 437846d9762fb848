#include "redis/redis_tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text/quote.h"

namespace quire {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

constexpr auto kWritePause = 60s;         // after the server has refused a page
constexpr auto kBetweenWarnings = 60s;    // about a server that comes and goes
constexpr size_t kMostKnown = 65536;      // pages: a million tokens, some 6 MB
constexpr size_t kAskedTogether = 512;    // keys in one packet of commands
constexpr size_t kOtherReply = 64 << 10;  // bytes of a reply that is not a page, at most

int64_t now() { return std::chrono::nanoseconds(SteadyClock::now().time_since_epoch()).count(); }

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

RedisTier::RedisTier(RedisTierOptions options)
    : options_(std::move(options)), identity_(page_file_identity(options_.identity, options_.page_bytes)) {
  known_.reserve(kMostKnown + 1);
  connect();
}

// ---- any thread ----

bool RedisTier::find(PageKey key) {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(key);
  if (found == known_.end()) return false;
  order_.splice(order_.begin(), order_, found->second);
  return true;
}

bool RedisTier::accepts() const { return up_ && now() >= suspended_until_.load(std::memory_order_relaxed); }

PageTier::Stats RedisTier::stats() const {
  const std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.pages = known_.size();
  return stats;
}

// ---- the store's thread ----

std::string RedisTier::name(PageKey key) const { return "quire:" + text(PageFileName{identity_, key}); }

void RedisTier::connect() {
  try {
    const size_t longest = page_file_bytes(options_.page_bytes) + kOtherReply;
    connection_ = std::make_unique<RedisConnection>(options_.server, longest, deadline());
  } catch (const Error& e) {
    return give_up(e.what());
  }
  if (std::exchange(warned_down_, false)) warn("answers again");
  up_ = true;
}

template <class Operation>
bool RedisTier::attempt(Operation operation) {
  if (!connection_) return false;
  try {
    operation();
    return true;
  } catch (const Error& e) {
    give_up(e.what());
  } catch (...) {  // no memory, in the middle of commands and replies
    give_up("there is no memory");
    throw;
  }
  return false;
}

// Reads that were announced and given up leave replies on their way. A new connection has none.
void RedisTier::leave_expected() {
  if (expected_.empty()) return;
  expected_.clear();
  connect();
}

// It may start again without what it had, so nothing is known of it any more.
void RedisTier::give_up(const char* why) {
  up_ = false;
  connection_.reset();
  expected_.clear();
  {
    const std::lock_guard lock(mutex_);
    ++stats_.errors;
    known_.clear();
    order_.clear();
  }
  if (warned_down_ || SteadyClock::now() < next_warning_) return;
  warned_down_ = true;
  next_warning_ = SteadyClock::now() + kBetweenWarnings;
  warn(fmt::format("{}; its pages are computed instead until it answers", why));
}

// The server answers, but does not take pages: its memory is full, it is a replica, or the user may not write.
void RedisTier::refuse(std::string_view reply) {
  suspended_until_.store(now() + std::chrono::nanoseconds(kWritePause).count(), std::memory_order_relaxed);
  count(&Stats::errors);
  if (std::exchange(warned_refused_, true)) return;
  warn(fmt::format("a page is refused: {}. Stored pages are still read, and writing is tried again every {} s",
                   quote(reply), kWritePause / 1s));
}

void RedisTier::warn(const std::string& text) const {
  if (options_.warn) options_.warn(fmt::format("shared cache {}: {}", public_text(options_.server), text));
}

void RedisTier::learn(PageKey key) {
  const std::lock_guard lock(mutex_);
  if (known_.contains(key)) return;
  Known one{key};
  known_.emplace(key, one.begin());  // may throw, so it comes first
  order_.splice(order_.begin(), one);
  if (known_.size() <= kMostKnown) return;
  known_.erase(order_.back());
  order_.pop_back();
}

void RedisTier::forget(PageKey key) {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(key);
  if (found == known_.end()) return;
  order_.erase(found->second);
  known_.erase(found);
}

void RedisTier::count(uint64_t Stats::*what, uint64_t more) {
  const std::lock_guard lock(mutex_);
  stats_.*what += more;
}

// TOUCH says whether a key exists, and for the server's eviction it is a use.
void RedisTier::look_for(std::span<const PageKey> keys) {
  leave_expected();
  attempt([&] {
    while (!keys.empty()) {
      const auto some = keys.first(std::min(keys.size(), kAskedTogether));
      for (const PageKey key : some) connection_->add({"TOUCH", name(key)});
      connection_->send(deadline());
      for (const PageKey key : some) {
        const RedisReply& reply = connection_->receive(deadline());
        if (reply.kind != RedisReply::kInteger) throw no_resource("a question is refused: {}", quote(reply.text));
        if (reply.integer > 0) {
          learn(key);
        } else {
          forget(key);
          count(&Stats::misses);
        }
      }
      keys = keys.subspan(some.size());
    }
  });
}

void RedisTier::prefetch(PageKey key) {
  attempt([&] {
    connection_->add({"GET", name(key)});
    connection_->send(deadline());
    expected_.push_back(key);
  });
}

bool RedisTier::read(PageKey key, std::span<std::byte> page) {
  if (!expected_.empty() && expected_.front() != key) leave_expected();
  if (expected_.empty()) prefetch(key);
  bool whole = false;
  attempt([&] {
    const RedisReply& reply = connection_->receive(deadline());
    expected_.pop_front();
    if (reply.kind == RedisReply::kNothing) {
      forget(key);
      return count(&Stats::misses);
    }
    if (reply.kind != RedisReply::kBytes) throw no_resource("a page is refused: {}", quote(reply.text));
    const char* damage = "has the wrong size";
    if (reply.text.size() == page_file_bytes(page.size())) {
      PageHeader header;
      std::memcpy(header.data(), reply.text.data(), header.size());
      std::memcpy(page.data(), reply.text.data() + header.size(), page.size());
      damage = page_damage({identity_, key}, header, page);
    }
    if (!damage) {
      whole = true;
      count(&Stats::hits);
      return count(&Stats::read_bytes, page.size());
    }
    forget(key);  // so that the page is computed and written in its place
    count(&Stats::damaged);
    if (!std::exchange(warned_damaged_, true))
      warn(fmt::format("the value of {} {}; its page is computed again (no more warnings about values)", name(key),
                       damage));
  });
  return whole;
}

bool RedisTier::write(PageKey key, std::span<const std::byte> page) {
  if (find(key)) return true;
  if (!accepts()) return false;
  leave_expected();
  bool written = false;
  attempt([&] {
    const PageHeader header = page_header({identity_, key}, page);
    content_.assign(as_text(header)).append(as_text(page));
    connection_->add({"SET", name(key), content_});
    connection_->send(deadline());
    const RedisReply& reply = connection_->receive(deadline());
    written = reply.kind == RedisReply::kStatus;
    if (!written) return refuse(reply.text);
    learn(key);
    count(&Stats::written_bytes, page.size());
  });
  return written;
}

// A connection that was lost while nothing was asked is noticed here, not by a request.
void RedisTier::refresh() {
  leave_expected();
  attempt([&] {
    connection_->add({"PING"});
    connection_->send(deadline());
    if (connection_->receive(deadline()).kind != RedisReply::kStatus) throw no_resource("it does not answer PING");
  });
  if (!connection_) connect();
}

}  // namespace quire
