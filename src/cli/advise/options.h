// The optimizations that advice is about: what can be changed, by which flag, and what it takes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/advise/search.h"
#include "kernels/types.h"
#include "load/report.h"
#include "quire/engine.h"

namespace quire {

// What a run is measured with.
struct AdviceSettings {
  EngineOptions engine;
  bool huge_pages = true;  // false: the system may give the process none (for comparison)
};

struct AdviceChoice {
  std::string what;  // "int8", "off"
  std::string flag;  // of `quire serve`; empty: none sets it
  AdviceValue value;
  std::function<void(AdviceSettings&)> apply;
};

struct AdviceTopic {
  std::string what;   // "KV cache type"
  std::string takes;  // effort: "restart"
  std::vector<AdviceChoice> choices;
  std::string not_tried = {};  // why there are none
  size_t covered = 0;          // so many of the choices are in the search that advice is compared with
};

// What decides which choices there are.
struct AdviceBasis {
  EngineOptions engine;     // the default
  Activations activations;  // in force with it
  KvType kv;                // likewise
  int threads = 1;          // likewise
  int concurrency = 1;      // of the workload
  ServiceLevel level;       // that is asked for
  std::string huge_pages;   // why the system gives none; empty: it does
};

// In the order in which they are measured: those first that usually gain most.
std::vector<AdviceTopic> advice_topics(const AdviceBasis& basis);

// As the search sees them.
std::vector<AdviceOption> advice_options(const std::vector<AdviceTopic>& topics);

AdviceSettings advice_settings(const EngineOptions& engine, const std::vector<AdviceTopic>& topics,
                               const AdviceConfiguration& configuration);

// Flags that differ from the defaults of `quire serve`: those that were given, then those of the configuration.
std::string serve_command(const EngineOptions& engine, const std::vector<AdviceTopic>& topics,
                          const AdviceConfiguration& configuration);

// Why the system gives no huge pages to memory that asks for them; empty: it does.
std::string why_no_huge_pages();

}  // namespace quire
