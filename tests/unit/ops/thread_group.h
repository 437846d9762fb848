// A group of "processes" that are threads of the test, and that fail where the test says.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ops/process_group.h"

namespace quire::testing {

class ThreadGroup {
 public:
  explicit ThreadGroup(int ranks) : ranks_(ranks) {}

  std::shared_ptr<ProcessGroup> of(int rank) { return std::make_shared<Member>(rank, *this); }
  int closed() const { return closed_; }

  // Before its exchange number n from now on, or its n-th message to or from one other, this rank runs out of memory, or stops answering for ever.
  void let_fail(int rank, int n) { set_fault(rank, n, false); }
  void let_hang(int rank, int n) { set_fault(rank, n, true); }

 private:
  using Bytes = std::vector<std::byte>;

  class Member final : public ProcessGroup {
   public:
    Member(int rank, ThreadGroup& group)
        : ProcessGroup(rank, group.ranks_, {.on_host = group.ranks_, .on_cores = group.ranks_}), group_(group) {}

    std::string name(int rank) const override { return "rank " + std::to_string(rank); }
    void exchange(std::span<const std::byte> mine, std::span<const size_t> sizes, std::span<std::byte> all) override {
      group_.take_fault(rank());
      for (int to = 0; to < ranks(); ++to)
        if (to != rank()) group_.put(rank(), to, {mine.begin(), mine.end()});
      size_t at = 0;
      for (int from = 0; from < ranks(); ++from) {
        const size_t size = sizes[static_cast<size_t>(from)];
        if (from != rank()) {
          const Bytes bytes = group_.take(from, rank(), exchange_patience_);
          if (bytes.size() != size) throw invalid("rank {} sent {} bytes, not {}", from, bytes.size(), size);
          std::ranges::copy(bytes, all.begin() + static_cast<ptrdiff_t>(at));
        }
        at += size;
      }
    }
    void send_to(int to, std::span<const std::byte> bytes) override {
      group_.take_fault(rank());
      group_.put(rank(), to, {bytes.begin(), bytes.end()});
    }
    void receive_from(int from, std::span<std::byte> to) override {
      group_.take_fault(rank());
      const Bytes bytes = group_.take(from, rank(), exchange_patience_);
      if (bytes.size() != to.size()) throw invalid("rank {} sent {} bytes, not {}", from, bytes.size(), to.size());
      std::ranges::copy(bytes, to.begin());
    }
    void send(std::span<const std::byte> message) override {
      for (int to = 1; to < ranks(); ++to) group_.put(0, to, {message.begin(), message.end()});
    }
    void receive(Bytes& message) override { message = group_.take(0, rank(), order_patience_); }
    void fail(std::string_view why) noexcept override {
      group_.lose("rank " + std::to_string(rank()) + " has failed: " + std::string(why));
    }
    void close() noexcept override { group_.count_closed(); }

   private:
    ThreadGroup& group_;
  };

  void set_fault(int rank, int n, bool hangs) {
    const std::lock_guard lock(mutex_);
    failing_ = rank;
    left_ = n;
    hangs_ = hangs;
  }

  void take_fault(int rank) {
    std::unique_lock lock(mutex_);
    if (rank != failing_ || left_-- > 0) return;
    if (!hangs_) throw std::bad_alloc();
    changed_.wait(lock, [&] { return !lost_.empty(); });
  }

  void put(int from, int to, Bytes bytes) {
    const std::lock_guard lock(mutex_);
    inboxes_[{from, to}].push_back(std::move(bytes));
    changed_.notify_all();
  }

  Bytes take(int from, int to, double patience) {
    std::unique_lock lock(mutex_);
    std::deque<Bytes>& inbox = inboxes_[{from, to}];
    const auto ready = [&] { return !inbox.empty() || !lost_.empty(); };
    if (patience == 0) {
      changed_.wait(lock, ready);
    } else if (!changed_.wait_for(lock, std::chrono::duration<double>(patience), ready)) {
      lost_ = "rank " + std::to_string(from) + " does not answer";
      changed_.notify_all();
    }
    if (inbox.empty()) throw no_resource("{}", lost_);  // what arrived before the loss is still delivered
    Bytes bytes = std::move(inbox.front());
    inbox.pop_front();
    return bytes;
  }

  void lose(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (lost_.empty()) lost_ = why;
    changed_.notify_all();
  }

  void count_closed() {
    const std::lock_guard lock(mutex_);
    ++closed_;
  }

  const int ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::deque<Bytes>> inboxes_;  // from, to
  std::string lost_;
  int closed_ = 0;
  int failing_ = -1, left_ = 0;
  bool hangs_ = false;
};

}  // namespace quire::testing
