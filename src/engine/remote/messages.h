// What an engine and an executor in another process say to each other: numbered requests, each with one reply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "json/parse.h"

namespace quire {

// A message is its number (uint64), the size of its JSON (uint32), the JSON, and bytes that the JSON describes.
struct Message {
  uint64_t number = 0;
  Json json;
  std::span<const std::byte> bytes = {};  // owned by whoever made or received the message
};

std::vector<std::byte> encode(const Message& message);
// The bytes are a view of `encoded`. Throws Error: it is no message.
Message decode(std::span<const std::byte> encoded);

// Requests name what they want: {"do": "pass", ...}. Replies have the request's number; {"error": ..., "memory": true or
// false} says that it failed.
inline constexpr char kDo[] = "do", kPass[] = "pass", kCommit[] = "commit", kRead[] = "read", kWrite[] = "write";

}  // namespace quire
