#include "engine/remote/executor_server.h"

#include <chrono>
#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/remote/messages.h"
#include "engine/remote/wire_results.h"
#include "engine/step/wire.h"

namespace quire {
namespace {

class Server {
 public:
  explicit Server(Executor& executor) : executor_(executor) {}

  // The encoded reply; empty: the request is an earlier one.
  std::span<const std::byte> answer(Message request) {
    if (request.number < number_) return {};
    if (request.number > number_) {
      number_ = request.number;
      reply_ = encode(carry_out(std::move(request)));
    }
    return reply_;
  }

 private:
  Message carry_out(Message request) {
    Message reply{.number = request.number, .json = Json::object()};
    try {
      run(std::move(request), reply);
    } catch (const std::bad_alloc&) {
      reply.json = {{"error", "out of memory"}, {"memory", true}};
    } catch (const std::exception& e) {
      reply.json = {{"error", e.what()}, {"memory", false}};
    }
    return reply;
  }

  void run(Message request, Message& reply) {
    const JsonField json(std::move(request.json), "a request");
    const auto what = json.get<std::string>(kDo);
    if (what == kPass) {
      order_ = read_forward(json);
      executor_.launch(order_.input);
      write_output(executor_.wait(), reply);
    } else if (what == kCommit) {
      executor_.commit(read_changes(json));
    } else if (what == kRead) {
      const CachePlace place = read_place(json);
      read_.resize(place.size);
      executor_.read(place, read_);
      reply.bytes = read_;
    } else if (what == kWrite) {
      executor_.write(read_place(json), request.bytes);
    } else {
      throw json.error("is no request: {}", what);
    }
  }

  Executor& executor_;
  uint64_t number_ = 0;  // number of the last request
  std::vector<std::byte> reply_, read_;
  ReceivedForward order_;
};

}  // namespace

void serve_executor(Executor& executor, MessageChannel& channel) {
  Server server(executor);
  std::vector<std::byte> encoded;
  for (;;) {
    try {
      if (!channel.receive(encoded, std::chrono::seconds(60))) continue;
      const auto reply = server.answer(decode(encoded));
      if (!reply.empty()) channel.send(reply);
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::kResource) return;
      throw;
    }
  }
}

}  // namespace quire
