// quire bench tune: every loop for each kind of a model's linears, compared with the machine's limits.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/cpu.h"
#include "cli/bench/bench.h"
#include "cli/bench/limits.h"
#include "cli/bench/report.h"
#include "cli/flags/engine_options.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/text_table.h"
#include "engine/loaded_model.h"
#include "engine/tuner.h"

namespace quire {
namespace {

struct TuneOptions {
  EngineOptions engine;
  double seconds = 10;
  bool json = false;
};

// Multiply-adds per second that the machine allows.
double limit_of(const MeasuredKind& kind, const MachineRates& rates) {
  const double compute = rates.multiply_adds[static_cast<size_t>(multiply_unit(kind.kind.inputs))];
  return std::min(compute, rates.bandwidth * kind.kind.rows / kind.bytes);
}

nlohmann::ordered_json kind_json(const MeasuredKind& kind, const MachineRates& rates) {
  nlohmann::ordered_json loops = nlohmann::ordered_json::array();
  for (size_t i = 0; i < kind.loops.size(); ++i) {
    const MeasuredLoop& loop = kind.loops[i];
    loops.push_back({{"loop", name(loop.loop)},
                     {"multiply_adds_per_second", loop.rate},
                     {"bytes_per_second", loop.rate * kind.bytes / kind.kind.rows},
                     {"of_limit", loop.rate / limit_of(kind, rates)},
                     {"samples", loop.samples},
                     {"built_in", i == 0},
                     {"chosen", i == kind.best}});
  }
  return {{"kind", name(kind.kind)},
          {"rows", kind.kind.rows},
          {"inputs", kind.kind.cols},
          {"limit_multiply_adds_per_second", limit_of(kind, rates)},
          {"loops", std::move(loops)}};
}

void print_kinds(const std::vector<MeasuredKind>& kinds, const MachineRates& rates) {
  TextTable table({"linears", "loop", "", "GMAC/s", "GB/s", "of limit", "samples"}, 3);
  for (const MeasuredKind& kind : kinds) {
    for (size_t i = 0; i < kind.loops.size(); ++i) {
      const MeasuredLoop& loop = kind.loops[i];
      const char* mark = i == kind.best ? "chosen" : i == 0 ? "built in" : "";
      table.add({i == 0 ? name(kind.kind) : "", name(loop.loop), mark, fmt::format("{:.1f}", loop.rate / 1e9),
                 fmt::format("{:.2f}", loop.rate * kind.bytes / kind.kind.rows / 1e9),
                 fmt::format("{:.0f} %", 100 * loop.rate / limit_of(kind, rates)), fmt::format("{}", loop.samples)});
    }
  }
  std::printf("%s", table.text().c_str());
}

void run_tune(TuneOptions o) {
  o.engine.tune = TuneMode::kOff;
  std::vector<MeasuredKind> kinds;
  MachineRates rates;
  std::string kernels;
  int threads = 0;
  {
    need_cpu(o.engine);
    Progress progress;
    progress.stage("loading " + o.engine.model);
    const LoadedModel model(o.engine);
    const Compute compute = model.runtime.cpu.compute(model.plan.activation_type);
    const std::vector<TunedMatrix> matrices = tuned_matrices(model.target, compute.activations);
    MultiplyUnits used{};
    for (const TunedMatrix& m : matrices) used[static_cast<size_t>(multiply_unit(m.inputs))] = true;
    MachineProbe machine(compute, listed(used));
    std::vector<MachineRates> probed{machine.measure()};
    progress.stage("measuring");
    kinds = measure_loops(
        compute, matrices, [](const LinearKind&) { return true; }, o.seconds,
        [&](size_t done, size_t total) {
          progress.step(done, total);
          probed.push_back(machine.measure());
        });
    rates = median_of(probed);
    kernels = model.info.kernels;
    threads = model.info.threads;
  }
  if (o.json) {
    nlohmann::ordered_json out = {{"cpu", cpu_name()},         {"kernels", kernels},
                                  {"threads", threads},        {"model", o.engine.model},
                                  {"machine", to_json(rates)}, {"kinds", nlohmann::ordered_json::array()}};
    for (const MeasuredKind& kind : kinds) out["kinds"].push_back(kind_json(kind, rates));
    std::printf("%s\n", out.dump(2).c_str());
    return;
  }
  std::printf("%s\n%s kernels, %d threads\nlimit: %s\n\n", cpu_name().c_str(), kernels.c_str(), threads,
              describe(rates).c_str());
  if (kinds.empty()) {
    std::printf("these kernels have one loop for each linear of the model\n");
  } else {
    print_kinds(kinds, rates);
  }
}

}  // namespace

void add_bench_tune_command(CLI::App& bench) {
  auto o = std::make_shared<TuneOptions>();
  CLI::App* command = bench.add_subcommand(
      "tune", "Measure every loop that the kernels have for a model's linear layers, and compare it with the limits");
  add_model_options(*command, o->engine);
  command->remove_option(command->get_option("--tune"));
  command->add_option("--seconds", o->seconds, "how long to measure")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command->add_flag("--json", o->json, "print the results as a JSON object");
  command->callback([o] { run_tune(*o); });
}

}  // namespace quire
