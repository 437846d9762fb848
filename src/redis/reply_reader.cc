#include "redis/reply_reader.h"

#include <hiredis/read.h>

#include <exception>
#include <new>

#include "base/error.h"

namespace quire {
namespace {

// hiredis has these make its objects. Here there is one object, and a null pointer makes hiredis refuse the reply.
redisReplyObjectFunctions reply_functions() {
  redisReplyObjectFunctions make{};
  make.createString = [](const redisReadTask* task, char* text, size_t size) -> void* {
    auto* const reply = static_cast<RedisReply*>(task->privdata);
    switch (task->type) {
      case REDIS_REPLY_STATUS:
        reply->kind = RedisReply::kStatus;
        break;
      case REDIS_REPLY_ERROR:
        reply->kind = RedisReply::kError;
        break;
      case REDIS_REPLY_STRING:
        reply->kind = RedisReply::kBytes;
        break;
      default:
        return nullptr;
    }
    try {
      reply->text.assign(text, size);
    } catch (const std::exception&) {  // must not cross C
      return nullptr;
    }
    return reply;
  };
  // (The count is an int or a size_t, by hiredis's version. Memory for as many elements as a server names is not allocated.)
  make.createArray = [](const redisReadTask*, auto) -> void* { return nullptr; };
  make.createInteger = [](const redisReadTask* task, long long value) -> void* {
    auto* const reply = static_cast<RedisReply*>(task->privdata);
    reply->kind = RedisReply::kInteger;
    reply->integer = value;
    return reply;
  };
  make.createNil = [](const redisReadTask* task) -> void* {
    auto* const reply = static_cast<RedisReply*>(task->privdata);
    reply->kind = RedisReply::kNothing;
    return reply;
  };
  make.freeObject = [](void*) {};
  return make;
}

}  // namespace

ReplyReader::ReplyReader(size_t longest) : longest_(longest), reader_(nullptr, &redisReaderFree) {
  static redisReplyObjectFunctions functions = reply_functions();
  reader_.reset(redisReaderCreateWithFunctions(&functions));
  if (!reader_) throw std::bad_alloc();
  reader_->privdata = &reply_;
  reader_->maxbuf = longest;  // keep the buffer between pages
}

ReplyReader::~ReplyReader() = default;

void ReplyReader::feed(std::span<const char> bytes) {
  if (redisReaderFeed(reader_.get(), bytes.data(), bytes.size()) != REDIS_OK)
    throw no_resource("there is no memory for the reply");
}

const RedisReply* ReplyReader::next() {
  void* reply = nullptr;
  const bool understood = redisReaderGetReply(reader_.get(), &reply) == REDIS_OK;
  if (!understood || (reply && reply != &reply_))
    throw no_resource("the reply is not one of a Redis server to this command");
  if (!reply && reader_->len - reader_->pos > longest_) throw no_resource("the reply is longer than any page");
  return reply ? &reply_ : nullptr;
}

}  // namespace quire
