// Works on the batches of a server, with the engine's time that other requests leave.
//
// A thread of its own reads lines and writes results. It never has more answers under way than the engine has free places for,
// and those run after all other requests of all tenants. Each tenant's batches are worked on one after the other; those of
// several tenants in turns.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "server/api/models.h"
#include "server/batch/batch_counts.h"
#include "server/batch/batch_job.h"
#include "server/batch/batch_table.h"
#include "server/batch/call_runner.h"
#include "server/batch/file_store.h"

namespace quire {

struct BatchQueueOptions : BatchLimits {
  size_t memory_bytes = size_t{64} << 20;  // for requests under way and their answers, half each
  size_t work_bytes = size_t{64} << 20;    // as CallLimits
  std::function<void(const std::function<void()>&)> worker = CallLimits{}.worker;  // likewise
  std::chrono::milliseconds retry{30'000};  // before a batch is tried again whose disk failed
  std::shared_ptr<BatchCounts> counts = std::make_shared<BatchCounts>();  // for metrics
};

// All members may be called from any thread. Those that take a tenant throw as FileStore and BatchTable do.
class BatchQueue {
 public:
  // Goes on with the batches that have not ended. Both must outlive it.
  BatchQueue(FileStore& files, const Models& models, BatchQueueOptions options);
  // Cancels what is under way: it is computed again by the next queue of this folder.
  ~BatchQueue();
  BatchQueue(const BatchQueue&) = delete;
  BatchQueue& operator=(const BatchQueue&) = delete;

  FileStore& files() { return files_; }
  BatchTable& table() { return table_; }

  Batch create(const Tenant& tenant, BatchOrder order);
  std::optional<Batch> cancel(const Tenant& tenant, const std::string& id);
  // Sets the counts of a batch that is being worked on, which its row has only now and then.
  void count(Batch& batch) const;

  void drain();  // begins no further requests

 private:
  using Clock = CallRunner::Clock;
  struct Running {  // a request
    std::string batch;
    ResultId id;
    std::string custom_id;
  };
  struct Active {
    std::unique_ptr<BatchJob> job;
    size_t running = 0;  // requests
    Clock::time_point saved = Clock::now();
  };
  using Jobs = std::map<std::string, Active>;  // by the batch's id

  void run();
  void work();
  bool step_jobs();
  bool step(Active& active);
  void open_jobs();
  void start_requests();
  bool has_room() const;
  Active* next_turn();
  void start(Active& active, BatchJob::Next next);
  void take(const CallResult& result);
  void end(Active& active, std::string_view status);
  void cancel_requests(const std::string& batch);
  void suspend(const std::string& id, std::string_view why);
  void publish(const Batch& batch);
  int64_t unanswered() const;
  void show_counts();
  void count_end(std::string_view status);
  Clock::time_point pause() const;

  FileStore& files_;
  BatchTable table_;
  const Models& models_;
  const BatchQueueOptions options_;
  CallRunner calls_;
  std::atomic<bool> stopping_{false}, draining_{false};
  std::atomic<bool> changed_{true};  // the table has something new
  struct Counts {
    int64_t total, completed, failed;
  };
  mutable std::mutex mutex_;
  std::map<std::string, Counts> counts_;  // by the batch's id
  // Of the thread alone.
  Jobs jobs_;
  std::map<std::string, Clock::time_point> suspended_;  // by the batch's id: when to try again
  std::unordered_map<uint64_t, Running> running_;
  uint64_t calls_made_ = 0;
  std::string last_turn_;
  Clock::time_point swept_ = {};
  bool tally_due_ = true;  // a batch has come, or has another state
  BatchTable::Tally tally_;
  int64_t tallied_ = 0;  // requests of tally_ that belong to open jobs
  std::thread thread_;
};

}  // namespace quire
