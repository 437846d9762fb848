// Metrics for Prometheus, with vLLM's names under the prefix "quire:".
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "quire/engine.h"
#include "server/batch/batch_counts.h"
#include "server/kv_events/kv_event_counts.h"
#include "server/otlp/span_counts.h"

namespace quire {

// An answer's end in metrics and log: stop, length, timeout, error, or abort if it was cancelled.
std::string_view finished_reason(FinishReason reason);

// The series of one model, each with the label model_name. Every member may be called from any thread.
class ModelMetrics {
 public:
  struct Series;
  explicit ModelMetrics(std::unique_ptr<Series> series);
  ~ModelMetrics();

  void prompt_admitted(int tokens);
  // For every output with tokens: their number, and the seconds since the choice's previous ones (negative: none).
  void tokens_generated(int tokens, double since_previous);
  void choice_finished(const Output& output);
  void request_rejected();  // by a full queue

  // Takes over an engine's counters and current values, and the names of its adapters.
  void set(const EngineStats& engine, std::span<const std::string> adapters = {});
  // The engine is gone: its current values become 0, and the next one's counters add to those of this one.
  void unloaded();

 private:
  const std::unique_ptr<Series> series_;
};

// All series of a server. Every member may be called from any thread.
class Metrics {
 public:
  // read_bandwidth: of this machine's memory, in bytes per second; 0: unknown, not exported. spans, kv_events, batches: nullptr:
  // likewise.
  explicit Metrics(const std::string& prefix = "quire:", double read_bandwidth = 0,
                   std::shared_ptr<const SpanCounts> spans = nullptr,
                   std::shared_ptr<const KvEventCounts> kv_events = nullptr,
                   std::shared_ptr<const BatchCounts> batches = nullptr);
  ~Metrics();

  // model: its served name.
  std::shared_ptr<ModelMetrics> add_model(const std::string& model, const ModelInfo& info);
  void http_answered(std::string_view route, int status);
  std::string text();  // the exposition

 private:
  struct Series;
  std::unique_ptr<Series> series_;
};

}  // namespace quire
