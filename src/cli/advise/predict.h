// What is computed or predicted instead of measured.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/advise/measurer.h"

namespace quire {

struct AdvicePrediction {
  std::string what, choice, takes;
  std::optional<double> gain;  // of tokens per second, over the default
  std::string not_predicted;   // why there is no figure
};

struct BatchPrediction {
  int concurrency = 1;
  double rate = 0;  // tokens of answers per second, all together
};

struct AdvicePredictions {
  std::vector<AdvicePrediction> weight_types;  // of fewer bits than the file's, or why not
  std::vector<BatchPrediction> batching;       // 1, 2, 4, … 32 requests at once
  std::string batching_not_predicted;          // why there are none
};

// From steps of the model's shape with random weights, measured now, under the workload's lengths (plan/serving.h). Takes a
// few seconds.
AdvicePredictions predict_advice(const EngineOptions& engine, const AdviceBaseline& baseline,
                                 const AdviceWorkload& workload);

// Bytes of the attention scores of the longest prompt that tiles save, all heads of a layer.
double saved_score_bytes(const AdviceBaseline& baseline, const AdviceWorkload& workload);

}  // namespace quire
