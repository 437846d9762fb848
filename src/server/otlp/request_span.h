// A request as a span of OpenTelemetry, with the names of its conventions for generative AI, as vLLM uses them, in OTLP's JSON
// (https://opentelemetry.io/docs/specs/otlp/#otlphttp).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/otlp/trace_context.h"

namespace quire {

// Holds no text of requests or answers. Latencies are in seconds; negative ones are not known.
struct RequestSpan {
  TraceId trace{};
  SpanId id{};
  std::optional<SpanId> parent = {};  // the client's span
  std::string state = {};             // the client's tracestate
  int64_t began = 0, ended = 0;       // nanoseconds since 1970

  std::string request_id = {}, model = {}, route = {};
  int choices = 0, max_tokens = 0;  // max_tokens 0: none was set
  double temperature = 0, top_p = 0;
  int prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0, accepted_tokens = 0;
  std::vector<std::string> finish_reasons = {};  // of the choices that ended, kMostReasons at most
  double queue = -1, ttft = -1, prefill = -1, decode = -1, inference = -1;
  int status = 0;       // HTTP
  bool failed = false;  // by a fault of the server, or because the client left before its answer

  static constexpr size_t kMostReasons = 16;
};

// Random ids that are not all zero.
TraceId new_trace_id();
SpanId new_span_id();

// The body of a POST to a collector. service: its name in the collector; version: the program's.
std::string spans_json(std::span<const RequestSpan> spans, std::string_view service, std::string_view version);

// How many spans a collector's answer says it has refused, although it has accepted the others.
int64_t refused_spans(std::string_view answer);

}  // namespace quire
