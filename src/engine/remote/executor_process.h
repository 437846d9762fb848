// An engine's executor in a child process, which has the weights and the cache.
#pragma once

#include <sys/types.h>

#include <memory>

#include "engine/loaded_model.h"
#include "engine/remote/channel.h"

namespace quire {

// Shows that the engine needs nothing of an executor beyond its interface: answers have the same bits. The child ends when
// the channel does.
class ExecutorProcess {
 public:
  // Starts the child as a copy of this process, so it should be called before others threads run. Throws Error (kResource).
  explicit ExecutorProcess(const EngineOptions& options);
  ~ExecutorProcess();
  ExecutorProcess(const ExecutorProcess&) = delete;
  ExecutorProcess& operator=(const ExecutorProcess&) = delete;

  // Has the child load the same model with a cache of the same size; once. Throws Error if it cannot.
  std::unique_ptr<Executor> connect(const LoadedModel& model);

 private:
  std::unique_ptr<MessageChannel> channel_;  // until connect()
  pid_t child_ = -1;
};

}  // namespace quire
