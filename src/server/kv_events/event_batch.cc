#include "server/kv_events/event_batch.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace quire {
namespace {

using WireValue = nlohmann::ordered_json;

constexpr const char* kEventMedium = "GPU";
constexpr int kEventRank = 0;  // vLLM's data parallel rank: each replica publishes for itself

// How many events from the first on go into one: removed pages, or stored pages of which each follows the one before.
size_t run_length(std::span<const KvEvent> events) {
  const KvEvent& first = events.front();
  size_t count = 1;
  for (; first.kind != KvEvent::Kind::kCleared && count < events.size(); ++count) {
    const KvEvent &before = events[count - 1], &next = events[count];
    if (next.kind != first.kind) break;
    const bool follows = next.parent == before.hash && next.adapter == first.adapter;
    if (first.kind == KvEvent::Kind::kStored && !follows) break;
  }
  return count;
}

// The event's type and fields, by vLLM's names and in its order.
WireValue wire_of(std::span<const KvEvent> events) {
  const KvEvent& first = events.front();
  if (first.kind == KvEvent::Kind::kCleared) return {{"type", "AllBlocksCleared"}};
  WireValue hashes = WireValue::array(), tokens = WireValue::array();
  for (const KvEvent& event : events) {
    hashes.push_back(event.hash);
    for (const TokenId token : event.tokens) tokens.push_back(token);
  }
  if (first.kind == KvEvent::Kind::kRemoved)
    return {{"type", "BlockRemoved"}, {"block_hashes", std::move(hashes)}, {"medium", kEventMedium}};
  return {{"type", "BlockStored"},
          {"block_hashes", std::move(hashes)},
          {"parent_block_hash", first.parent ? WireValue(*first.parent) : WireValue()},
          {"token_ids", std::move(tokens)},
          {"block_size", first.tokens.size()},
          {"lora_id", nullptr},
          {"medium", kEventMedium},
          {"lora_name", first.adapter.empty() ? WireValue() : WireValue(first.adapter)}};
}

WireValue values_of(WireValue map) {
  WireValue values = WireValue::array();
  for (auto& [name, value] : map.items()) values.push_back(std::move(value));
  return values;
}

}  // namespace

std::vector<uint8_t> encode_kv_events(std::span<const KvEvent> events, double unix_seconds, KvEventFormat format) {
  WireValue list = WireValue::array();
  while (!events.empty()) {
    const size_t count = run_length(events);
    WireValue event = wire_of(events.first(count));
    list.push_back(format == KvEventFormat::kMap ? std::move(event) : values_of(std::move(event)));
    events = events.subspan(count);
  }
  return WireValue::to_msgpack(WireValue::array({unix_seconds, std::move(list), kEventRank}));
}

}  // namespace quire
