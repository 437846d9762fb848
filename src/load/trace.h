// Request traces: when requests arrived in production and how long they were.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quire {

struct TraceRow {
  double at = 0;  // seconds, from an arbitrary origin
  int input_tokens = 0, output_tokens = 0;
  std::vector<int64_t> blocks;  // Mooncake: an id for each 512 tokens of the prompt; equal ids mean equal tokens
};

inline constexpr int kTraceBlockTokens = 512;

// Reads Azure's CSV (TIMESTAMP,ContextTokens,GeneratedTokens) or Mooncake's JSON lines ({"timestamp": ms,
// "input_length", "output_length", "hash_ids"}), sorted by time; never empty. Throws Error with file and line.
std::vector<TraceRow> read_trace(const std::string& path);

}  // namespace quire
