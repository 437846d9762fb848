// Loads the models of a server that listens already.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "cli/serve/model_orders.h"
#include "engine/memory_budget.h"
#include "engine/runtime.h"
#include "quire/engine.h"
#include "server/engine_completer.h"
#include "server/http/server.h"

namespace quire {

// Blocks SIGINT and SIGTERM in this thread.
void block_ends();

// On a thread of its own: attaches the models to the server, loads those that are wanted at the start, and says when the
// server is ready. If that fails, the server stops.
class Loading {
 public:
  // common: the options that all models share: threads, kernels, device, and memory with its part for requests. Models that
  // clients have downloaded get flags and common, too.
  Loading(std::vector<ModelOrder> orders, ModelFlags flags, EngineOptions common, Server& server);

  bool busy() const { return !ended_ || (!failure_ && server_.models().changing()); }  // a model is being loaded
  void join() { thread_.join(); }
  void rethrow_failure() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void run();
  void load_one();
  void attach_several();
  ServedModel served_model(const ModelOrder& order);
  ServedModel downloaded_model(const std::string& name);
  std::unique_ptr<Completer> load(const ModelOrder& order);

  std::vector<ModelOrder> orders_;
  const ModelFlags flags_;
  const EngineOptions common_;
  Server& server_;
  double read_bandwidth_ = 0;
  std::shared_ptr<Runtime> runtime_;  // of several models
  MemoryBudget::Share request_memory_;
  size_t model_memory_ = 0;               // for all models
  std::unique_ptr<Completer> completer_;  // of one model
  std::exception_ptr failure_;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace quire
