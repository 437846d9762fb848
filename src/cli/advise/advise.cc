#include "cli/advise/advise.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "cli/advise/report.h"
#include "cli/terminal/interruptible.h"
#include "engine/dtype_names.h"

namespace quire {
namespace {

// Of a run, in the budget: some 20 values in two runs each, half of them twice, combinations, and loading in between.
constexpr double kSlicePart = 1.0 / 120;
constexpr double kLongestSlice = 8;  // seconds
// Parts of the budget that what the search does not do may take.
constexpr double kStartsPart = 0.06, kSearchPart = 0.92;

void measure_starts(AdviceMeasurer& measurer, const AdviseOptions& o, AdviceReport& report) {
  const double load = report.baseline.load_seconds;
  std::error_code unknown;
  const auto space = std::filesystem::space(std::filesystem::temp_directory_path(), unknown);
  if (!o.engine.pack_cache.empty()) {
    report.starts_not_tried = "--pack-cache is set already";
  } else if (3 * load > kStartsPart * o.budget) {
    report.starts_not_tried = fmt::format("three starts of {:.1f} s take too much of the budget", load);
  } else if (unknown || space.available < 2 * report.baseline.model.weight_bytes) {
    report.starts_not_tried = "the folder for temporary files has no room for it";
  } else {
    try {
      run_interruptible([&](const auto& check) { report.starts = measurer.measure_starts(check); });
    } catch (const Error& e) {
      report.starts_not_tried = e.what();
    }
  }
}

// Of the options that an exhaustive search covers: the default, and the first one or two choices.
std::vector<std::vector<size_t>> covered_values(const std::vector<AdviceTopic>& topics) {
  std::vector<std::vector<size_t>> all;
  for (const AdviceTopic& topic : topics) {
    std::vector<size_t>& values = all.emplace_back(1, 0);
    for (size_t value = 1; value <= std::min(topic.choices.size(), topic.covered); ++value) values.push_back(value);
  }
  return all;
}

AdviceReport advise(const AdviseOptions& o, Progress& progress) {
  AdviceReport report{.level = parse_service_level(o.slo)};
  report.limits = {.budget = kSearchPart * o.budget, .most_kl = o.allow_kl};
  AdviceMeasurer measurer(o.engine, read_advice_workload(o.workload), report.level,
                          std::min(kLongestSlice, kSlicePart * o.budget), progress);
  report.engine = measurer.engine();
  report.baseline = measurer.baseline();
  report.workload = measurer.workload();
  const ModelInfo& model = report.baseline.model;
  report.topics = advice_topics({.engine = measurer.engine(),
                                 .activations = *find_value(kActivationsNames, model.activations),
                                 .kv = *find_value(kKvTypeNames, model.kv_cache_dtype),
                                 .threads = model.threads,
                                 .concurrency = report.workload.concurrency,
                                 .level = report.level,
                                 .huge_pages = why_no_huge_pages()});
  measurer.set_topics(report.topics);
  progress.stage("predicting");
  report.predictions = predict_advice(measurer.engine(), report.baseline, report.workload);
  report.score_bytes = saved_score_bytes(report.baseline, report.workload);
  const std::vector<AdviceOption> options = advice_options(report.topics);
  report.search = search_advice(options, measurer.measures(), report.limits);
  if (o.exhaustive)
    report.exhaustive = search_exhaustively(covered_values(report.topics), options, measurer.measures(), report.limits,
                                            report.search.best);
  measure_starts(measurer, o, report);
  report.compared_tokens = measurer.compared_tokens();
  report.limits.budget = o.budget;
  return report;
}

}  // namespace

void run_advise(const AdviseOptions& o) {
  AdviceReport report;
  {
    Progress progress;
    report = advise(o, progress);
  }
  if (o.json)
    std::printf("%s\n", advice_json(report).dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  else
    std::fputs(advice_text(report).c_str(), stdout);
}

}  // namespace quire
