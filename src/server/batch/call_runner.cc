#include "server/batch/call_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <iterator>
#include <mutex>
#include <utility>

#include "base/working_memory.h"
#include "server/api/failure.h"
#include "server/api/held_bytes.h"
#include "server/api/service.h"

namespace quire {

struct CallRunner::Call {
  Call(uint64_t its_number, const ApiDefinition& its_api, std::string its_body, Tenant its_tenant, ByteBudget& outputs)
      : number(its_number),
        api(its_api),
        body(std::move(its_body)),
        tenant(std::move(its_tenant)),
        held(outputs),
        bytes(body.size()) {}
  ~Call() {
    if (exchange) exchange->close();
  }

  const uint64_t number;
  const ApiDefinition& api;
  std::string body;  // until it is prepared
  const Tenant tenant;
  const std::string request_id = fmt::format("{:016x}{:016x}", random_u64(), random_u64());
  ServiceLease lease = {};
  Job job = {};
  std::shared_ptr<Exchange> exchange = nullptr;
  std::string text = {};  // of the answer
  HeldBytes held;         // by the answer
  size_t bytes;           // in memory, for the request
  int left = 0;           // choices
};

// What other threads have to say to this one. Outlives the runner where a model is still being loaded for it.
struct CallRunner::Mailbox {
  struct Loaded {
    uint64_t number;
    ServiceLease lease;
    size_t model;
    std::exception_ptr failure;
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<uint64_t> ready = {};  // calls with outputs
  std::vector<Loaded> loaded = {};
  bool woken = false, closed = false;
};

CallRunner::CallRunner(const Models& models, CallLimits limits)
    : models_(models),
      limits_(std::move(limits)),
      outputs_(limits_.answer_bytes),
      mailbox_(std::make_shared<Mailbox>()) {}

CallRunner::~CallRunner() {
  std::vector<Mailbox::Loaded> unwanted;
  {
    const std::lock_guard lock(mailbox_->mutex);
    mailbox_->closed = true;
    unwanted.swap(mailbox_->loaded);
  }
  calls_.clear();
}

void CallRunner::start(uint64_t number, const ApiDefinition& api, std::string body, const Tenant& tenant) {
  auto call = std::make_unique<Call>(number, api, std::move(body), tenant, outputs_);
  bytes_ += call->bytes;
  Call& started = *call;
  calls_.emplace(number, std::move(call));
  prepare(started);
}

void CallRunner::prepare(Call& call) {
  try {
    limits_.worker([&] {
      WorkingMemory memory(limits_.work_bytes);
      call.job = models_.prepare(call.api, call.body, call.tenant, memory, call.lease);
    });
    begin(call);
  } catch (const ModelNotLoaded& missing) {
    if (!limits_.may_load()) return waiting_.push_back(call.number);
    models_.acquire(missing.model, [box = mailbox_, number = call.number, model = missing.model](
                                       ServiceLease lease, std::exception_ptr failure) {
      const std::lock_guard lock(box->mutex);
      if (box->closed) return;
      box->loaded.push_back({number, std::move(lease), model, std::move(failure)});
      box->changed.notify_all();
    });
  } catch (const ApiError& error) {
    if (error.code != "queue_full") return fail(call, error);
    call.lease = {};  // whoever waits for a place keeps no model from leaving
    waiting_.push_back(call.number);
  } catch (...) {
    fail(call, current_api_error());
  }
}

void CallRunner::begin(Call& call) {
  std::string().swap(call.body);
  bytes_ += call.job.bytes;
  bytes_ -= std::exchange(call.bytes, call.job.bytes);
  call.left = call.job.choices;
  answers_ += call.left;
  for (Request& request : call.job.requests) request.trace_label = call.request_id;
  call.exchange = std::make_shared<Exchange>(
      *call.job.completer, call.job.metrics,
      [box = mailbox_, number = call.number] {
        const std::lock_guard lock(box->mutex);
        box->ready.push_back(number);
        box->changed.notify_all();
      },
      limits_.answer_bytes, outputs_);
  if (call.left == 0) return advance(call);
  call.exchange->start(std::move(call.job.requests), std::move(call.job.places));
}

void CallRunner::advance(Call& call) {
  pieces_.clear();
  call.exchange->take(pieces_);
  std::optional<ApiError> failure;
  if (call.exchange->overflowed()) failure = overloaded_error();
  for (const Piece& piece : pieces_) {
    if (!failure) failure = failure_of(piece.output);
    if (!failure && !call.held.grow_to(call.held.bytes() + payload_bytes(piece.output))) failure = overloaded_error();
    if (failure) break;
    call.job.answer->add(piece.choice, piece.output, call.text);
    if (piece.output.finish == FinishReason::kNone) continue;
    --call.left;
    --answers_;
  }
  if (failure) return fail(call, *failure);
  if (call.left > 0) return;
  try {
    limits_.worker([&] {
      WorkingMemory memory(limits_.work_bytes);
      const WorkingIn counted(&memory);
      call.job.answer->end(call.text);
    });
  } catch (const WorkingMemoryExceeded&) {
    return fail(call, large_answer_error(limits_.work_bytes));
  } catch (...) {
    return fail(call, current_api_error());
  }
  finish(call, 200, std::move(call.text));
}

void CallRunner::fail(Call& call, const ApiError& error) {
  finish(call, error.status, error_body(error, call.api.errors));
}

void CallRunner::finish(Call& call, int status, std::string body) {
  results_.push_back({.number = call.number, .status = status, .request_id = call.request_id, .body = std::move(body)});
  cancel(call.number);
}

void CallRunner::cancel(uint64_t number) {
  const auto found = calls_.find(number);
  if (found == calls_.end()) return;
  answers_ -= found->second->left;
  bytes_ -= found->second->bytes;
  std::erase(waiting_, number);
  calls_.erase(found);
}

void CallRunner::wake() {
  const std::lock_guard lock(mailbox_->mutex);
  mailbox_->woken = true;
  mailbox_->changed.notify_all();
}

void CallRunner::collect(std::vector<CallResult>& ended, Clock::time_point deadline) {
  constexpr std::chrono::milliseconds kNextTry{100};  // for places that others give back
  if (!waiting_.empty()) deadline = std::min(deadline, Clock::now() + kNextTry);
  std::vector<uint64_t> ready;
  std::vector<Mailbox::Loaded> loaded;
  {
    std::unique_lock lock(mailbox_->mutex);
    const auto any = [&] { return mailbox_->woken || !mailbox_->ready.empty() || !mailbox_->loaded.empty(); };
    if (results_.empty()) mailbox_->changed.wait_until(lock, deadline, any);
    mailbox_->woken = false;
    ready.swap(mailbox_->ready);
    loaded.swap(mailbox_->loaded);
  }
  for (Mailbox::Loaded& model : loaded) {
    const auto found = calls_.find(model.number);
    if (found == calls_.end()) continue;
    Call& call = *found->second;
    if (model.failure) {
      fail(call, load_error(models_.list(model.model).names.names.front(), model.failure));
    } else {
      call.lease = std::move(model.lease);
      prepare(call);
    }
  }
  for (const uint64_t number : ready) {
    if (const auto found = calls_.find(number); found != calls_.end()) advance(*found->second);
  }
  for (size_t again = waiting_.size(); again > 0; --again) {
    const uint64_t number = waiting_.front();
    waiting_.pop_front();
    prepare(*calls_.at(number));
    if (!waiting_.empty() && waiting_.back() == number) break;  // others would hardly fare better
  }
  ended.insert(ended.end(), std::make_move_iterator(results_.begin()), std::make_move_iterator(results_.end()));
  results_.clear();
}

}  // namespace quire
