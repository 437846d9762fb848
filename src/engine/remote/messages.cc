#include "engine/remote/messages.h"

#include <cstring>
#include <string>

#include "base/error.h"

namespace quire {

std::vector<std::byte> encode(const Message& message) {
  const std::string json = message.json.dump();
  const auto size = static_cast<uint32_t>(json.size());
  std::vector<std::byte> encoded(sizeof message.number + sizeof size + json.size() + message.bytes.size());
  std::byte* to = encoded.data();
  const auto put = [&](const void* from, size_t count) {
    if (count > 0) std::memcpy(to, from, count);
    to += count;
  };
  put(&message.number, sizeof message.number);
  put(&size, sizeof size);
  put(json.data(), json.size());
  put(message.bytes.data(), message.bytes.size());
  return encoded;
}

Message decode(std::span<const std::byte> encoded) {
  Message message;
  uint32_t size = 0;
  constexpr size_t kHead = sizeof message.number + sizeof size;
  if (encoded.size() < kHead) throw invalid("a message of {} bytes is too short", encoded.size());
  std::memcpy(&message.number, encoded.data(), sizeof message.number);
  std::memcpy(&size, encoded.data() + sizeof message.number, sizeof size);
  encoded = encoded.subspan(kHead);
  if (encoded.size() < size)
    throw invalid("a message says that it has {} bytes of JSON, but has {}", size, encoded.size());
  message.json = parse_json({reinterpret_cast<const char*>(encoded.data()), size}, "a message");
  message.bytes = encoded.subspan(size);
  return message;
}

}  // namespace quire
