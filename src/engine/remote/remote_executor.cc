#include "engine/remote/remote_executor.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/error.h"
#include "engine/remote/wire_results.h"
#include "engine/step/wire.h"

namespace quire {

RemoteExecutor::RemoteExecutor(std::unique_ptr<MessageChannel> channel, const Patience& patience)
    : channel_(std::move(channel)), patience_(patience) {}

void RemoteExecutor::send(Json request, const char* what, std::span<const std::byte> bytes) {
  request[kDo] = what;
  request_ = encode({.number = ++number_, .json = std::move(request), .bytes = bytes});
  channel_->send(request_);
}

Message RemoteExecutor::reply() {
  for (int tries = 1;;) {
    if (!channel_->receive(reply_, patience_.reply)) {
      if (tries++ == patience_.most_tries) throw no_resource("the process that computes does not answer");
      channel_->send(request_);
      continue;
    }
    Message message = decode(reply_);
    assert(message.number <= number_);
    if (message.number < number_) continue;  // repeated, or late
    if (!message.json.contains("error")) return message;
    if (message.json["memory"].get<bool>()) throw std::bad_alloc();
    throw no_resource("{}", message.json["error"].get<std::string>());
  }
}

void RemoteExecutor::launch(const ForwardInput& input) { send(to_json(input), kPass); }

const ForwardOutput& RemoteExecutor::wait() {
  const Message message = reply();
  read_output(message, output_, logits_);
  return output_;
}

void RemoteExecutor::commit(const CacheChanges& changes) {
  send(to_json(changes), kCommit);
  reply();
}

void RemoteExecutor::read(const CachePlace& place, std::span<std::byte> to) {
  send(to_json(place), kRead);
  const Message message = reply();
  assert(message.bytes.size() == to.size());
  std::ranges::copy(message.bytes, to.begin());
}

void RemoteExecutor::write(const CachePlace& place, std::span<const std::byte> bytes) {
  send(to_json(place), kWrite, bytes);
  reply();
}

}  // namespace quire
