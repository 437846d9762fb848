// A connection to a Redis server: commands out, replies in.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "redis/reply_reader.h"
#include "redis/stream.h"

namespace quire {

// Commands may be sent before the replies to earlier ones have been received; replies come in the same order. After an Error
// the connection is of no use. Operations end by their deadlines (Stream).
class RedisConnection {
 public:
  // Connects, logs in and selects the database. longest_reply: bytes. Throws Error.
  RedisConnection(const RedisUrl& server, size_t longest_reply, Deadline deadline);

  // Adds a command, which the next send() sends. Its words may be any bytes.
  void add(std::initializer_list<std::string_view> words);
  void send(Deadline deadline);
  // The reply to the oldest command without one, valid until the next call.
  const RedisReply& receive(Deadline deadline);

 private:
  const RedisReply& ask(std::initializer_list<std::string_view> words, Deadline deadline);

  Stream stream_;
  ReplyReader replies_;
  std::string commands_;
  std::vector<char> received_;
};

}  // namespace quire
