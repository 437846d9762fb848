// Replies of a Redis server, from the bytes that it sends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

struct redisReader;

namespace quire {

struct RedisReply {
  enum Kind { kStatus, kError, kInteger, kBytes, kNothing } kind = kNothing;
  std::string text;     // of a status, an error, or bytes
  int64_t integer = 0;  // of an integer
};

// hiredis's parser, for the kinds above alone and within bounded memory: a server may send anything.
class ReplyReader {
 public:
  explicit ReplyReader(size_t longest);  // bytes of a reply
  ~ReplyReader();
  ReplyReader(const ReplyReader&) = delete;
  ReplyReader& operator=(const ReplyReader&) = delete;

  void feed(std::span<const char> bytes);
  // The next reply, valid until the next call; null: it is not complete. Throws Error if the bytes are not a reply of these
  // kinds, or if it is too long; then the reader cannot be used any more.
  const RedisReply* next();

 private:
  const size_t longest_;
  RedisReply reply_;
  std::unique_ptr<redisReader, void (*)(redisReader*)> reader_;
};

}  // namespace quire
