#include "engine/remote/executor_process.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/remote/executor_server.h"
#include "engine/remote/messages.h"
#include "engine/remote/remote_executor.h"

namespace quire {
namespace {

Message receive(MessageChannel& channel, std::vector<std::byte>& memory) {
  while (!channel.receive(memory, std::chrono::seconds(60))) {
  }
  return decode(memory);
}

// In the child.
void run(EngineOptions options, MessageChannel& channel) {
  std::vector<std::byte> memory;
  const Message start = receive(channel, memory);
  options.memory_bytes = 0;  // the engine has kept to it
  options.kv_cache_bytes = start.json["kv_cache_bytes"].get<size_t>();
  options.max_model_len = start.json["max_model_len"].get<int>();
  options.on_load = nullptr;
  try {
    LoadedModel model(std::move(options));
    channel.send(encode({.json = {{"units", model.cache.units}, {"states", model.cache.states}}}));
    serve_executor(model.executor(), channel);
  } catch (const std::exception& e) {
    channel.send(encode({.json = {{"error", e.what()}}}));
  }
}

}  // namespace

ExecutorProcess::ExecutorProcess(const EngineOptions& options) {
  std::array<int, 2> sockets{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0)
    throw no_resource("cannot connect to an executor process: socketpair fails with error {}", errno);
  child_ = ::fork();
  if (child_ < 0) throw no_resource("cannot start an executor process: fork fails with error {}", errno);
  if (child_ == 0) {
    // The connections of other engines must end with them, and not with this process.
    const int socket = ::dup2(sockets[1], STDERR_FILENO + 1);
    ::close_range(STDERR_FILENO + 2, ~0u, 0);
    try {
      SocketChannel channel(socket);
      run(options, channel);
    } catch (const std::exception&) {  // the engine is gone
    }
    ::_exit(0);
  }
  ::close(sockets[1]);
  channel_ = std::make_unique<SocketChannel>(sockets[0]);
}

ExecutorProcess::~ExecutorProcess() {
  channel_.reset();
  while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::unique_ptr<Executor> ExecutorProcess::connect(const LoadedModel& model) {
  channel_->send(
      encode({.json = {{"kv_cache_bytes", model.info.kv_cache_bytes}, {"max_model_len", model.info.max_model_len}}}));
  std::vector<std::byte> memory;
  const Message reply = receive(*channel_, memory);
  if (reply.json.contains("error")) throw no_resource("executor process: {}", reply.json["error"].get<std::string>());
  if (reply.json["units"] != model.cache.units || reply.json["states"] != model.cache.states)
    throw no_resource("executor process: its cache has {} units and {} states instead of {} and {}",
                      reply.json["units"].get<int>(), reply.json["states"].get<int>(), model.cache.units,
                      model.cache.states);
  return std::make_unique<RemoteExecutor>(std::move(channel_));
}

}  // namespace quire
