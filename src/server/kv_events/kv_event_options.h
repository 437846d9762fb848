// Where KV events are published, and how: the flags and vLLM's JSON for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/name_table.h"

namespace quire {

// How an event is encoded (event_batch.h).
enum class KvEventFormat : uint8_t { kArray, kMap };
inline constexpr NameTable<KvEventFormat, 2> kKvEventFormatNames = {
    {{KvEventFormat::kArray, "array"}, {KvEventFormat::kMap, "map"}}};

struct KvEventOptions {
  std::string endpoint = {};         // tcp://HOST:PORT or ipc://PATH; empty: events are not published
  std::string replay_endpoint = {};  // where past batches can be asked for; empty: nowhere
  std::string topic = {};            // the first frame of every message
  KvEventFormat format = KvEventFormat::kArray;
  size_t buffer_steps = 10'000;  // past batches that are kept for replay
  int hwm = 100'000;             // messages that wait for one subscriber; further ones do not reach it
};

// Throws Error unless this is an endpoint: tcp://HOST:PORT or ipc://PATH.
void check_kv_endpoint(std::string_view endpoint);

// Whether the publisher listens there: at a path, on all addresses or on loopback. Otherwise it connects to a subscriber
// that listens.
bool listens_at(std::string_view endpoint);
// Whether other machines are told: what is published has the tokens of all prompts.
bool leaves_machine(std::string_view endpoint);

// Reads the value of vLLM's --kv-events-config, and gives the fields that it lacks the values of `options`. Throws Error that
// names the field.
KvEventOptions read_kv_events_config(std::string_view json, KvEventOptions options);

}  // namespace quire
