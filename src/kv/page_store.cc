#include "kv/page_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "base/signals.h"
#include "kv/disk_tier.h"
#include "kv/page_file.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kFlushAtEnd = std::chrono::seconds(2);
constexpr double kAssumedBytesPerSecond = 1e9;  // a disk's rate until it is measured
constexpr double kSmoothing = 15.0 / 16;        // weight of the old estimate when a page is read
constexpr double kForgetting = 15.0 / 16;       // each rescan moves the estimate towards the assumed one by 1/16
// Files requested ahead of the one being read: 8 of 360 KB read 1.0 GB/s from a cold disk, none 0.6 (a virtual disk,
// 2026-11). The kernel alone reads a file in pieces, one after the other.
constexpr size_t kReadAhead = 8;
// Rescans of the folder may take 1/50 of the thread's time, but come after ten times the usual pause at the latest.
constexpr int kRescanShare = 50, kLongestPause = 10;

bool wants_disk_tier(const PageStoreOptions& options) { return !options.directory.empty() && options.disk_bytes > 0; }
bool has_disk_tier(const PageStoreOptions& options) {
  return wants_disk_tier(options) && options.disk_bytes / 2 >= page_file_bytes(options.page_bytes);
}

bool has_slow_tier(const PageStoreOptions& options) { return options.open_shared || has_disk_tier(options); }

size_t kept_pages(const PageStoreOptions& options) { return options.host_bytes / options.page_bytes; }
size_t queued_pages(const PageStoreOptions& options) {
  return has_slow_tier(options) ? std::max<size_t>(2, options.write_behind_bytes / options.page_bytes) : 0;
}

// Without memory for a file name or a warning, the attempt fails, and the thread continues.
template <class Try>
bool succeeds(Try attempt) {
  try {
    return attempt();
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace

struct PageStore::State {
  struct Read {
    PageKey key;
    std::span<std::byte> out;
    uint64_t ticket;
  };

  explicit State(const PageStoreOptions& o)
      : options(o),
        assumed_read_seconds(static_cast<double>(o.page_bytes) / kAssumedBytesPerSecond),
        read_seconds(assumed_read_seconds) {
    host.emplace(options.page_bytes, kept_pages(options), queued_pages(options));
    const auto warn_later = [this](const std::string& text) { warn(text); };
    if (options.open_shared) {
      tier = options.open_shared(warn_later);
      if (tier) asked.reserve(kMostAsked), asking.reserve(kMostAsked);
      return;
    }
    if (!has_disk_tier(options)) {
      if (wants_disk_tier(options) && options.warn)
        options.warn(fmt::format(
            "cache folder {} is not used: --cache-size is {} bytes, and two pages of {} bytes must fit; raise it",
            options.directory, options.disk_bytes, options.page_bytes));
      return;
    }
    tier = std::make_unique<DiskTier>(
        DiskTierOptions{options.directory, options.disk_bytes, options.page_bytes, options.identity, warn_later});
  }
  void start(const std::shared_ptr<State>& self);
  void stop();
  // Not after the store's end, when the owner of options.warn may be gone.
  void warn(const std::string& text) {
    if (options.warn && !abandoned) options.warn(text);
  }

  void run();
  void serve_questions(std::unique_lock<std::mutex>& lock);
  void serve_reads(std::unique_lock<std::mutex>& lock);
  void write_one(std::unique_lock<std::mutex>& lock);

  const PageStoreOptions options;
  std::unique_ptr<PageTier> tier;  // below the host tier; null: none
  const double assumed_read_seconds;
  std::atomic<double> read_seconds;

  std::shared_ptr<const void> kept_alive;
  std::atomic<bool> abandoned{false};  // the store has gone while its thread hangs

  std::mutex mutex;  // guards the following members; never held during file operations
  std::condition_variable work, progress;
  std::optional<HostTier> host;
  std::vector<Read> reads, reading;  // reading: used by the thread alone
  size_t pending = 0;                // reads not completed
  std::vector<Completed> done;
  std::vector<PageKey> asked, asking;  // asking: used by the thread alone
  uint64_t questions = 0, answers = 0;
  bool stopping = false, stopped = false;
  uint64_t dropped = 0, write_failures = 0;

  std::thread thread;
};

void PageStore::State::start(const std::shared_ptr<State>& self) {
  const BlockSignals blocked;
  thread = std::thread([self] { self->run(); });
}

void PageStore::State::stop() {
  if (!thread.joinable()) return;
  std::unique_lock lock(mutex);
  stopping = true;
  work.notify_one();
  if (progress.wait_for(lock, kFlushAtEnd + options.patience, [&] { return stopped; })) {
    lock.unlock();
    thread.join();
    return;
  }
  lock.unlock();
  warn(fmt::format(
      "{} does not respond; pages not yet written are given up",
      options.open_shared ? "the shared cache" : fmt::format("cache folder {}: the disk", options.directory)));
  abandoned = true;
  thread.detach();
}

// Questions and loads come first because requests wait for them; then a rescan of the folder; then writes.
void PageStore::State::run() {
  auto next_rescan = Clock::now() + options.rescan;
  std::optional<Clock::time_point> end;
  std::unique_lock lock(mutex);
  for (;;) {
    work.wait_until(lock, next_rescan,
                    [&] { return stopping || !asked.empty() || !reads.empty() || host->queue_length() > 0; });
    if (stopping) {
      if (!end) end = Clock::now() + kFlushAtEnd;
      if (abandoned || host->queue_length() == 0 || Clock::now() >= *end) {
        stopped = true;
        progress.notify_all();
        return;
      }
      write_one(lock);
    } else if (!asked.empty()) {
      serve_questions(lock);
    } else if (!reads.empty()) {
      serve_reads(lock);
    } else if (Clock::now() >= next_rescan) {
      lock.unlock();
      const auto start = Clock::now();
      succeeds([&] { return tier->refresh(), true; });
      // A disk that was slow once is tried again some minutes later.
      const double before = read_seconds.load(std::memory_order_relaxed);
      read_seconds.store(assumed_read_seconds + kForgetting * (before - assumed_read_seconds),
                         std::memory_order_relaxed);
      // A server that does not answer is tried again soon: meanwhile the thread has nothing else to do.
      const Clock::duration pause = options.rescan,
                            fair = tier->answers() ? kRescanShare * (Clock::now() - start) : pause;
      next_rescan = Clock::now() + std::clamp(fair, pause, kLongestPause * pause);
      lock.lock();
    } else if (host->queue_length() > 0) {
      write_one(lock);
    }
  }
}

void PageStore::State::serve_questions(std::unique_lock<std::mutex>& lock) {
  asking.swap(asked);
  const uint64_t question = questions;
  lock.unlock();
  succeeds([&] { return tier->look_for(asking), true; });
  asking.clear();
  lock.lock();
  answers = question;
  progress.notify_all();
}

void PageStore::State::serve_reads(std::unique_lock<std::mutex>& lock) {
  reading.swap(reads);
  const auto start = Clock::now();
  size_t read = 0, tried = 0;
  for (; tried < reading.size() && !stopping; ++tried) {
    const Read& page = reading[tried];
    lock.unlock();
    const bool ok = succeeds([&] {
      for (size_t i = tried == 0 ? 0 : tried + kReadAhead; i <= tried + kReadAhead && i < reading.size(); ++i)
        tier->prefetch(reading[i].key);
      return tier->read(page.key, page.out);
    });
    read += ok;
    lock.lock();
    --pending;
    done.push_back({page.ticket, ok});
    progress.notify_all();
  }
  if (read == tried && read > 0) {  // a missing page says nothing about the speed of reading
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(read);
    const double before = read_seconds.load(std::memory_order_relaxed);
    read_seconds.store(seconds + std::pow(kSmoothing, read) * (before - seconds), std::memory_order_relaxed);
  }
  reading.clear();
}

void PageStore::State::write_one(std::unique_lock<std::mutex>& lock) {
  const auto first = *host->first_queued();
  lock.unlock();
  // The page stays in place until written().
  const bool ok = succeeds([&] { return tier->write(first.key, first.page); });
  lock.lock();
  write_failures += !ok;
  host->written();
  progress.notify_all();
}

size_t PageStore::memory_bytes(const PageStoreOptions& options) {
  return (kept_pages(options) + queued_pages(options)) * options.page_bytes;
}

PageStore::PageStore(PageStoreOptions options) {
  assert(options.page_bytes > 0);
  state_ = std::make_shared<State>(options);
  if (state_->tier) state_->start(state_);
}

PageStore::~PageStore() { state_->stop(); }

void PageStore::keep_alive(std::shared_ptr<const void> memory) { state_->kept_alive = std::move(memory); }

PageStore::Tier PageStore::find(PageKey key) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->host->find(key)) return Tier::kHost;
  }
  // A queued page is on disk before it leaves the queue.
  return state_->tier && state_->tier->find(key) ? Tier::kDisk : Tier::kNone;
}

bool PageStore::is_shared() const { return state_->tier && state_->tier->is_shared(); }

uint64_t PageStore::ask(std::span<const PageKey> keys) {
  State& s = *state_;
  if (!is_shared() || !s.tier->answers()) return 0;
  uint64_t question = 0;
  {
    const std::lock_guard lock(s.mutex);
    if (keys.empty() || s.asked.size() + keys.size() > kMostAsked) return 0;
    s.asked.insert(s.asked.end(), keys.begin(), keys.end());
    question = ++s.questions;
  }
  s.work.notify_one();
  return question;
}

bool PageStore::answered(uint64_t question) const {
  const std::lock_guard lock(state_->mutex);
  return state_->answers >= question;
}

void PageStore::put(PageKey key, const Fill& fill) {
  State& s = *state_;
  const bool to_disk = s.tier && !s.tier->find(key);
  const bool queue = to_disk && s.tier->accepts();
  {
    const std::lock_guard lock(s.mutex);
    const bool queued = s.host->put(key, fill, queue);
    s.dropped += to_disk && !(queue && queued);
  }
  if (queue) s.work.notify_one();
}

bool PageStore::use_host_page(PageKey key, const Use& use) {
  const std::lock_guard lock(state_->mutex);
  const auto page = state_->host->find(key);
  if (page) use(*page);
  return page.has_value();
}

bool PageStore::load(PageKey key, std::span<std::byte> out, uint64_t ticket) {
  State& s = *state_;
  assert(out.size() == s.options.page_bytes);
  // find() knows only those pages of a shared tier that ask() was asked about. It may have others, such as the rest of a checkpoint.
  if (!s.tier || !(is_shared() ? s.tier->answers() : s.tier->find(key))) return false;
  {
    const std::lock_guard lock(s.mutex);
    s.done.reserve(s.done.size() + s.pending + 1);  // may throw, so it happens on the caller's thread
    s.reads.push_back({key, out, ticket});
    ++s.pending;
  }
  s.work.notify_one();
  return true;
}

std::span<std::byte> PageStore::host_memory() const { return state_->host->memory(); }

void PageStore::completed(std::vector<Completed>& out) {
  const std::lock_guard lock(state_->mutex);
  out = state_->done;
  state_->done.clear();  // keeps the capacity for pending loads
}

void PageStore::wait_completed(std::chrono::milliseconds most) {
  std::unique_lock lock(state_->mutex);
  state_->progress.wait_for(lock, most, [&] {
    return !state_->done.empty() || (state_->pending == 0 && state_->answers == state_->questions);
  });
}

void PageStore::flush() {
  std::unique_lock lock(state_->mutex);
  state_->progress.wait(lock, [&] { return state_->host->queue_length() == 0; });
}

double PageStore::disk_read_seconds_per_page() const { return state_->read_seconds.load(std::memory_order_relaxed); }

PageStore::Stats PageStore::stats() const {
  const State& s = *state_;
  const PageTier::Stats tier = s.tier ? s.tier->stats() : PageTier::Stats{};
  const std::lock_guard lock(state_->mutex);
  return {s.host->pages(),  tier.pages,   s.dropped,
          s.write_failures, tier.damaged, is_shared() ? tier : PageTier::Stats{}};
}

}  // namespace quire
