// Advice for people and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/advise/measurer.h"
#include "cli/advise/predict.h"

namespace quire {

struct AdviceReport {
  EngineOptions engine;  // the default
  AdviceBaseline baseline;
  AdviceWorkload workload;
  ServiceLevel level;
  AdviceLimits limits;
  std::vector<AdviceTopic> topics;
  SearchResult search;
  int compared_tokens = 0;  // for divergences; 0: none was measured
  std::optional<AdviceStarts> starts;
  std::string starts_not_tried;
  AdvicePredictions predictions;
  double score_bytes = 0;  // saved_score_bytes()
  std::optional<ExhaustiveResult> exhaustive;
};

std::string advice_text(const AdviceReport& report);
nlohmann::ordered_json advice_json(const AdviceReport& report);

}  // namespace quire
