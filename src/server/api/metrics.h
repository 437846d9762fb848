// What Prometheus asks for: vLLM's names under "quire:".
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "quire/engine.h"

namespace quire {

// What metrics and log call an answer's end: stop, length, timeout, error; abort for what was cancelled.
std::string_view finished_reason(FinishReason reason);

// Every member may be called from any thread.
class Metrics {
 public:
  // read_bandwidth: bytes per second that this machine reads at best; 0: not known, no figure for it.
  explicit Metrics(const std::string& model, int max_model_len,
                   const std::string& prefix = "quire:", double read_bandwidth = 0);
  ~Metrics();

  void prompt_admitted(int tokens);
  // Of every output: how many tokens came, how long after the choice's previous ones (seconds; negative: the first).
  void tokens_generated(int tokens, double since_previous);
  void choice_finished(const Output& output);
  void http_answered(std::string_view route, int status);
  void request_rejected();  // by a full queue

  // The exposition text. Gauges are set from the engine's figures now.
  std::string scrape(const EngineStats& engine);

 private:
  struct Series;
  std::unique_ptr<Series> series_;
};

}  // namespace quire
