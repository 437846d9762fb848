// The pages of `quire lab`: Markdown of each experiment, and an index.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/lab/experiment.h"

namespace quire {

// Where the numbers of a page come from.
struct LabMachine {
  std::string processor, kernels, model, version, date;
  int threads = 0;
  bool quick = false;
};

// The files of the figures: NAME.svg, or NAME-1.svg, NAME-2.svg … if there are several.
std::vector<std::string> figure_files(const Experiment& experiment, const LabResult& result);

// The page NAME.md.
std::string experiment_page(const Experiment& experiment, const LabResult& result, const LabMachine& machine);

// One line of result for each experiment: those that have just run, and from `earlier`, the index that this one replaces,
// those of the others.
struct LabSummary {
  const Experiment* experiment;
  std::string text;
};
std::string lab_index(const std::vector<LabSummary>& summaries, std::string_view earlier);
// Whether a text is an index that lab_index() wrote, so that it may be replaced.
bool is_lab_index(std::string_view text);

nlohmann::ordered_json lab_json(const Experiment& experiment, const LabResult& result);
nlohmann::ordered_json lab_json(const LabMachine& machine);

}  // namespace quire
