#include "server/batch/batch_queue.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cassert>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/signals.h"
#include "server/api/answer/answer.h"
#include "server/api/service.h"

namespace quire {
namespace {

// Added to the tenant's priority, whose range is far smaller: requests of batches run after all others.
constexpr int kAfterAllOthers = 1'000'000;
constexpr size_t kMostJobs = 8;       // that are open at a time
constexpr size_t kLinesChecked = 64;  // of an input, before results are looked at again
constexpr std::chrono::seconds kSaved{10}, kSwept{60};
constexpr std::chrono::milliseconds kBusy{100};  // until places are looked for again that others hold

}  // namespace

BatchQueue::BatchQueue(FileStore& files, const Models& models, BatchQueueOptions options)
    : files_(files),
      table_(files),
      models_(models),
      options_(std::move(options)),
      calls_(models, {.work_bytes = options_.work_bytes,
                      .answer_bytes = options_.memory_bytes / 2,
                      .worker = options_.worker,
                      // A model is loaded for a batch only while nobody else is answered: it may take another's place.
                      .may_load = [this] { return models_.admission()->inside() <= calls_.answers(); }}),
      thread_([this] { run(); }) {}

BatchQueue::~BatchQueue() {
  stopping_ = true;
  calls_.wake();
  thread_.join();
}

void BatchQueue::drain() { draining_ = true; }

Batch BatchQueue::create(const Tenant& tenant, BatchOrder order) {
  Batch batch = table_.insert(tenant.name, tenant.priority, std::move(order));
  changed_ = true;
  calls_.wake();
  return batch;
}

std::optional<Batch> BatchQueue::cancel(const Tenant& tenant, const std::string& id) {
  std::optional<Batch> batch = table_.cancel(tenant.name, id);
  changed_ = true;
  calls_.wake();
  return batch;
}

void BatchQueue::count(Batch& batch) const {
  const std::lock_guard lock(mutex_);
  const auto found = counts_.find(batch.id);
  if (batch.ended || found == counts_.end()) return;
  batch.total = found->second.total;
  batch.completed = found->second.completed;
  batch.failed = found->second.failed;
}

void BatchQueue::publish(const Batch& batch) {
  const std::lock_guard lock(mutex_);
  counts_[batch.id] = {batch.total, batch.completed, batch.failed};
}

void BatchQueue::run() {
  const BlockSignals blocked;
  while (!stopping_) {
    try {
      work();
    } catch (const std::exception& error) {
      spdlog::error("batches: {}; trying again in {} s", error.what(), options_.retry.count() / 1000);
      std::vector<CallResult> none;
      jobs_.clear();
      for (const auto& [number, request] : running_) calls_.cancel(number);
      running_.clear();
      calls_.collect(none, Clock::now() + options_.retry);
      changed_ = true;
    }
  }
  for (const auto& [id, active] : jobs_) {
    try {
      table_.save_counts(active.job->batch());
    } catch (const std::exception&) {  // they are counted again
    }
  }
}

void BatchQueue::work() {
  std::vector<CallResult> results;
  while (!stopping_) {
    if (Clock::now() >= swept_ + kSwept) {
      swept_ = Clock::now();
      files_.remove_expired(unix_seconds());
      changed_ = true;  // batches expire, too
    }
    if (changed_.exchange(false)) open_jobs();
    const bool more = step_jobs();
    start_requests();
    show_counts();
    calls_.collect(results, more || changed_ ? Clock::now() : pause());
    for (const CallResult& result : results) take(result);
    results.clear();
  }
}

// Of the open jobs.
int64_t BatchQueue::unanswered() const {
  int64_t sum = 0;
  for (const auto& [id, active] : jobs_) {
    const Batch& batch = active.job->batch();
    if (batch.validated()) sum += batch.total - batch.completed - batch.failed;
  }
  return sum;
}

// Requests of open jobs are counted as they are now, others as their rows say.
void BatchQueue::show_counts() {
  if (tally_due_) {
    try {
      for (const auto& [id, active] : jobs_) table_.save_counts(active.job->batch());
      tally_ = table_.tally();
      tallied_ = unanswered();
      tally_due_ = false;
    } catch (const Error&) {  // the disk failed: keep showing the last counts
    }
  }
  BatchCounts& counts = *options_.counts;
  for (size_t state = 0; state < tally_.open.size(); ++state) counts.open[state] = tally_.open[state];
  const int64_t running = std::ssize(running_);
  counts.running = running;
  counts.waiting = tally_.unanswered - tallied_ + unanswered() - running;
}

void BatchQueue::count_end(std::string_view status) {
  const auto state = std::ranges::find(kEndedBatchStates, status);
  assert(state != kEndedBatchStates.end());
  ++options_.counts->ended[static_cast<size_t>(state - kEndedBatchStates.begin())];
}

BatchQueue::Clock::time_point BatchQueue::pause() const {
  const bool waits = std::ranges::any_of(jobs_, [](const auto& job) { return !job.second.job->is_read(); });
  Clock::time_point until = waits && !draining_ ? Clock::now() + kBusy : swept_ + kSwept;
  for (const auto& [id, again] : suspended_) until = std::min(until, again);
  return until;
}

void BatchQueue::open_jobs() {
  const int64_t now = unix_seconds();
  tally_due_ = true;
  for (Batch& batch : table_.next(kMostJobs, now)) {
    const std::string id = batch.id;
    if (const auto found = suspended_.find(id); found != suspended_.end()) {
      if (Clock::now() < found->second) continue;
      suspended_.erase(found);
    }
    if (const auto open = jobs_.find(id); open != jobs_.end()) {
      if (batch.status == batch_status::kCancelling) open->second.job->batch().status = batch.status;
      continue;
    }
    if (batch.status == batch_status::kValidating) batch.total = 0;  // it is checked from its beginning
    try {
      auto job = std::make_unique<BatchJob>(files_, batch, options_);
      if (job->batch().validated()) job->open_results();
      publish(job->batch());
      jobs_.emplace(id, Active{.job = std::move(job)});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kNotFound) {
        suspend(id, error.what());
        continue;
      }
      batch.errors = dump(Json::array(
          {{{"code", "input_lost"}, {"line", nullptr}, {"message", error.what()}, {"param", "input_file_id"}}}));
      table_.end(batch, batch_status::kFailed, {}, now);
      count_end(batch_status::kFailed);
    }
  }
}

// One step of each open job. Returns whether there is more to do at once.
bool BatchQueue::step_jobs() {
  for (auto at = suspended_.begin(); at != suspended_.end(); ++at) {
    if (Clock::now() < at->second) continue;
    changed_ = true;
    break;
  }
  std::vector<std::string> ids;
  for (const auto& [id, active] : jobs_) ids.push_back(id);
  bool more = changed_;
  for (const std::string& id : ids) {
    try {
      more = step(jobs_.at(id)) || more;
    } catch (const Error& error) {
      suspend(id, error.what());
    }
  }
  return more;
}

bool BatchQueue::step(Active& active) {
  BatchJob& job = *active.job;
  Batch& batch = job.batch();
  const int64_t now = unix_seconds();
  const bool cancelled = batch.status == batch_status::kCancelling;
  if (cancelled || now >= batch.expires()) {
    end(active, cancelled ? batch_status::kCancelled : batch_status::kExpired);
    return true;
  }
  if (!batch.validated()) {
    if (!job.check_lines(kLinesChecked)) return true;
    if (job.is_wrong()) {
      end(active, batch_status::kFailed);
    } else if (table_.begin(batch, now)) {
      tally_due_ = true;
      job.open_results();
      publish(batch);
    }
    return true;
  }
  if (job.is_read() && active.running == 0) {
    if (table_.finalize(batch, now)) end(active, batch_status::kCompleted);
    return true;
  }
  if (Clock::now() >= active.saved + kSaved) {
    active.saved = Clock::now();
    table_.save_counts(batch);
  }
  return false;
}

void BatchQueue::end(Active& active, std::string_view status) {
  BatchJob& job = *active.job;
  Batch& batch = job.batch();
  const std::string id = batch.id;
  cancel_requests(id);
  active.running = 0;
  const int64_t failed_before = batch.failed;
  if (batch.validated() && status == batch_status::kCancelled)
    job.end_rest("batch_cancelled", "the batch was cancelled before this request was answered");
  if (batch.validated() && status == batch_status::kExpired)
    job.end_rest("batch_expired", "the completion window ended before this request was answered");
  table_.end(batch, status, job.finish(), unix_seconds());
  options_.counts->failed += static_cast<uint64_t>(batch.failed - failed_before);
  count_end(status);
  {
    const std::lock_guard lock(mutex_);
    counts_.erase(id);
  }
  spdlog::info("batch {} is {}: {} requests, {} completed, {} failed", id, status, batch.total, batch.completed,
               batch.failed);
  jobs_.erase(id);
  changed_ = true;  // the tenant's next one
}

// Places that the engine has free, less a quarter, which stays for requests that come meanwhile. A tenant's batches leave most
// of its places in the queue to its other requests.
bool BatchQueue::has_room() const {
  const ServiceOptions& options = models_.options();
  const int slots = std::max(1, options.max_running - std::max(1, options.max_running / 4));
  const int own = std::max(1, std::min(slots, (options.max_running + options.max_queue) / 4));
  return models_.admission()->inside() < slots && calls_.answers() < own && calls_.calls() < static_cast<size_t>(own) &&
         calls_.bytes() < options_.memory_bytes / 2;
}

void BatchQueue::start_requests() {
  while (!draining_ && !stopping_ && has_room()) {
    Active* const active = next_turn();
    if (!active) return;
    const std::string id = active->job->batch().id;
    try {
      std::optional<BatchJob::Next> next = active->job->next();
      if (next) start(*active, std::move(*next));
      changed_ = changed_ || !next;  // it may have to end
    } catch (const Error& error) {
      suspend(id, error.what());
    }
  }
}

// The job after the one whose turn was the last.
BatchQueue::Active* BatchQueue::next_turn() {
  const auto has_lines = [](const Active& active) {
    const Batch& batch = active.job->batch();
    const bool begun = batch.status == batch_status::kInProgress || batch.status == batch_status::kFinalizing;
    return begun && !active.job->is_read();
  };
  auto at = jobs_.upper_bound(last_turn_);
  for (size_t looked = 0; looked < jobs_.size(); ++looked, ++at) {
    if (at == jobs_.end()) at = jobs_.begin();
    if (!has_lines(at->second)) continue;
    last_turn_ = at->first;
    return &at->second;
  }
  return nullptr;
}

void BatchQueue::start(Active& active, BatchJob::Next next) {
  const Batch& batch = active.job->batch();
  const uint64_t number = ++calls_made_;
  running_.emplace(number, Running{batch.id, next.id, std::move(next.line.custom_id)});
  ++active.running;
  calls_.start(number, *next.line.api, std::move(next.line.body), {batch.tenant, batch.priority + kAfterAllOthers});
}

void BatchQueue::take(const CallResult& result) {
  const auto found = running_.find(result.number);
  if (found == running_.end()) return;
  const Running request = std::move(found->second);
  running_.erase(found);
  const auto job = jobs_.find(request.batch);
  if (job == jobs_.end()) return;
  --job->second.running;
  try {
    job->second.job->add(request.id, request.custom_id, result);
    ++(result.status == 200 ? options_.counts->completed : options_.counts->failed);
    publish(job->second.job->batch());
  } catch (const Error& error) {
    suspend(request.batch, error.what());
  }
}

void BatchQueue::cancel_requests(const std::string& batch) {
  std::erase_if(running_, [&](const auto& request) {
    if (request.second.batch != batch) return false;
    calls_.cancel(request.first);
    return true;
  });
}

void BatchQueue::suspend(const std::string& id, std::string_view why) {
  spdlog::error("batch {}: {}; trying again in {} s", id, why, options_.retry.count() / 1000);
  cancel_requests(id);
  jobs_.erase(id);
  tally_due_ = true;
  suspended_[id] = Clock::now() + options_.retry;
}

}  // namespace quire
