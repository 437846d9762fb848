// Metrics for Prometheus, with vLLM's names under the prefix "quire:".
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "quire/engine.h"
#include "server/otlp/span_counts.h"

namespace quire {

// An answer's end in metrics and log: stop, length, timeout, error, or abort if it was cancelled.
std::string_view finished_reason(FinishReason reason);

// Every member may be called from any thread.
class Metrics {
 public:
  // model: its served name. read_bandwidth: of this machine's memory, in bytes per second; 0: unknown, not exported.
  // spans: nullptr: likewise.
  explicit Metrics(const std::string& model, const ModelInfo& info,
                   const std::string& prefix = "quire:", double read_bandwidth = 0,
                   std::shared_ptr<const SpanCounts> spans = nullptr);
  ~Metrics();

  void prompt_admitted(int tokens);
  // For every output with tokens: their number, and the seconds since the choice's previous ones (negative: none).
  void tokens_generated(int tokens, double since_previous);
  void choice_finished(const Output& output);
  void http_answered(std::string_view route, int status);
  void request_rejected();  // by a full queue

  // The exposition text. Gauges are set from `engine`.
  std::string scrape(const EngineStats& engine);

 private:
  struct Series;
  std::unique_ptr<Series> series_;
};

}  // namespace quire
