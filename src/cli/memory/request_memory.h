// What `quire serve` keeps of its memory for requests.
#pragma once

#include <cstddef>

#include "quire/engine.h"
#include "server/http/server.h"

namespace quire {

// Divides the memory for requests among what they take, and reserves it in the engine's budget. request_memory:
// --request-memory; 0: a quarter of the engine's memory, between 64 MiB and 512 MiB.
void reserve_request_memory(size_t request_memory, ServerOptions& server, EngineOptions& engine);

}  // namespace quire
