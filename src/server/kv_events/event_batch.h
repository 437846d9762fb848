// The events of a step, and their bytes on the wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quire/page_observer.h"
#include "server/kv_events/kv_event_options.h"

namespace quire {

struct KvEvent {
  enum class Kind : uint8_t { kStored, kRemoved, kCleared } kind;
  uint64_t hash = 0;
  std::optional<uint64_t> parent = {};  // this and the following: of a page that is stored
  TokenIds tokens = {};
  std::string adapter = {};
};

// vLLM's EventBatch in msgpack (vllm/distributed/kv_events.py): [time, [event, ...], data_parallel_rank]. Its events were
// arrays, which llm-d reads, and became maps, which vllm-router reads:
//   ["BlockStored", [hash, ...], parent hash or nil, [token, ...], block size, nil, "GPU", adapter or nil]
//   ["BlockRemoved", [hash, ...], "GPU"]
//   ["AllBlocksCleared"]
//   {"type": "BlockStored", "block_hashes": [hash, ...], "parent_block_hash": hash or nil, "token_ids": [token, ...],
//    "block_size": block size, "lora_id": nil, "medium": "GPU", "lora_name": adapter or nil}
//   {"type": "BlockRemoved", "block_hashes": [hash, ...], "medium": "GPU"}
//   {"type": "AllBlocksCleared"}
// A BlockStored has consecutive pages of one prompt. "GPU" is vLLM's word for the memory that the engine computes in, which
// routers rate highest. unix_seconds: the time.
std::vector<uint8_t> encode_kv_events(std::span<const KvEvent> events, double unix_seconds, KvEventFormat format);

}  // namespace quire
