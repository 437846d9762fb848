// Sends the spans of requests to a collector, in batches, from a thread of its own.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "server/otlp/collector_client.h"
#include "server/otlp/collector_url.h"
#include "server/otlp/request_span.h"
#include "server/otlp/span_counts.h"

namespace quire {

struct SpanExporterOptions {
  CollectorUrl url;
  HeaderList headers = {};
  std::string service = "quire";  // service.name
  std::string version = "unknown";
  size_t most_waiting = 2048;                   // spans; further ones are dropped
  size_t batch = 512;                           // spans of one request
  std::chrono::milliseconds delay{1000};        // how long a span may wait for others
  std::chrono::milliseconds timeout{10'000};    // of one request
  std::chrono::milliseconds first_pause{1000};  // before a batch is sent again; doubles each time
  int attempts = 5;                             // of a batch
  std::chrono::milliseconds last_time{2000};    // for what waits when the server stops
  ResolveHost resolve = resolve_host;           // finds the collector; a call that takes longer is not waited for
};

// A batch is sent again if the collector does not answer, or with 429, 502, 503 or 504, as OTLP says; after the pause that
// it asks for, if it does. The first loss of spans is logged, and again the first after a batch was accepted.
class SpanExporter {
 public:
  SpanExporter(SpanExporterOptions options, std::shared_ptr<SpanCounts> counts);
  // Sends what waits, once, within last_time.
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  // Never waits for the collector. From any thread.
  void add(RequestSpan span);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
