// links: redis
// Reads any bytes as the replies of a Redis server: the same replies however the bytes are cut, none longer than allowed and
// the bytes that it came from.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/error.h"
#include "redis/redis_url.h"
#include "redis/reply_reader.h"

namespace {

constexpr size_t kLongest = 200;

void require(bool holds) {
  if (!holds) __builtin_trap();
}

// The replies, each as text; a last one "!" stands for an error.
std::vector<std::string> replies_of(const char* bytes, size_t size, size_t step) {
  quire::ReplyReader reader(kLongest);
  std::vector<std::string> replies;
  try {
    for (size_t at = 0; at < size; at += step) {
      reader.feed({bytes + at, std::min(step, size - at)});
      while (const quire::RedisReply* const reply = reader.next()) {
        require(reply->text.size() <= size);
        replies.push_back(std::to_string(reply->kind) + " " + std::to_string(reply->integer) + " " + reply->text);
      }
    }
  } catch (const quire::Error&) {
    replies.push_back("!");
  }
  return replies;
}

// What messages show of a URL; nullopt: it is none.
std::optional<std::string> public_url(std::string_view text) {
  if (!quire::is_redis_url(text)) return std::nullopt;
  try {
    return quire::public_text(quire::parse_redis_url(text));
  } catch (const quire::Error&) {
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const char* const bytes = reinterpret_cast<const char*>(data);
  if (const auto url = public_url({bytes, size})) require(public_url(*url) == url);
  const std::vector<std::string> one_by_one = replies_of(bytes, size, 1), in_threes = replies_of(bytes, size, 3);
  // Where a reply is too long is noticed at the end of a piece, so the last element may differ.
  const size_t least = std::min(one_by_one.size(), in_threes.size());
  for (size_t i = 0; i + 1 < least; ++i) require(one_by_one[i] == in_threes[i]);
  return 0;
}
