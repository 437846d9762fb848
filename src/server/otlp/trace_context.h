// The W3C's headers that tie the spans of several programs together: traceparent and tracestate
// (https://www.w3.org/TR/trace-context/).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

using TraceId = std::array<uint8_t, 16>;
using SpanId = std::array<uint8_t, 8>;

struct TraceContext {
  TraceId trace{};  // not all zero
  SpanId parent{};  // likewise
  bool sampled = false;
  std::string state = {};  // tracestate, to be passed on as it is
};

// A malformed header counts as none, as the standard says: "00-" and the two ids and flags in lower-case hexadecimal. Of
// later versions than 00, what follows the flags is ignored.
std::optional<TraceContext> parse_traceparent(std::string_view header);

// Whether a tracestate may be passed on: printable ASCII of at most 512 bytes.
bool is_tracestate(std::string_view header);

}  // namespace quire
