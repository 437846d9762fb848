// links: text
// Any template over a fixed chat renders or fails with an Error, within bounded time and memory.
#include <cstddef>
#include <cstdint>
#include <string>

#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using nlohmann::ordered_json;
  static const ordered_json kMessages = ordered_json::parse(R"([
    {"role": "system", "content": "Be kind — s'il te plaît."},
    {"role": "user", "content": [{"type": "text", "text": "a<b>"}, {"type": "text", "text": "你好 👋"}]},
    {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, true, null]}}}]},
    {"role": "tool", "content": "{\"y\": 1}"}])");
  static const ordered_json kTools =
      ordered_json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {}}}])");
  try {
    const auto chat = quire::ChatTemplate::parse(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
    chat.render({.messages = kMessages,
                 .tools = kTools,
                 .special_tokens = {{"bos_token", "<s>"}},
                 .kwargs = {{"n", 7}, {"s", "ab, cd"}},
                 .now = std::chrono::local_days{std::chrono::year{2026} / 11 / 21}});
  } catch (const quire::Error&) {
  }
  return 0;
}
