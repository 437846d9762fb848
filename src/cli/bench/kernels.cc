// quire bench kernels: single linear layers by type, shape and number of rows, compared with the machine's limits.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/cpu.h"
#include "base/error.h"
#include "cli/bench/bench.h"
#include "cli/bench/limits.h"
#include "cli/bench/report.h"
#include "cli/flags/engine_options.h"
#include "cli/flags/weight_type.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/text_table.h"
#include "engine/dtype_names.h"
#include "kernels/kernels.h"
#include "ops/cpu/linear.h"
#include "ops/cpu/tuning.h"
#include "quant/gguf_blocks.h"
#include "quant/synthetic.h"

namespace quire {
namespace {

struct KernelsOptions {
  std::string kernels = "auto", activations = "int8";
  std::vector<std::string> types, shapes = {"2048x2048", "8192x2048"};
  std::vector<int> rows = {1, 2, 4, 8, 16, 32, 128, 512};
  int threads = 0, repetitions = 5, megabytes = 256;
  bool json = false;
};

struct Shape {
  int outputs, inputs;
};

Shape parse_shape(const std::string& text) {
  Shape shape{};
  int end = 0;
  if (std::sscanf(text.c_str(), "%dx%d%n", &shape.outputs, &shape.inputs, &end) != 2 ||
      static_cast<size_t>(end) != text.size() || shape.outputs < 1 || shape.inputs < 1 || shape.outputs > 1 << 20 ||
      shape.inputs > 1 << 20)
    throw invalid("--shapes {} must have the form OUTPUTSxINPUTS, as 8192x2048, each between 1 and {}", text, 1 << 20);
  return shape;
}

std::vector<TensorType> parse_types(const std::vector<std::string>& names) {
  if (names.empty()) return loadable_weight_types();
  std::vector<TensorType> types;
  for (const std::string& name : names) types.push_back(parse_weight_type("--types", name));
  return types;
}

// Copies of one matrix, together far larger than the CPU's caches. Using them in turn reads each from memory.
class Copies {
 public:
  Copies(TensorType type, Shape shape, size_t least_bytes, Team& team)
      : matrix_(describe_packed(type, shape.outputs, shape.inputs)) {
    const size_t bytes = matrix_.bytes();
    count_ = std::max<size_t>(1, (least_bytes + bytes - 1) / bytes);
    memory_ = LargeBuffer(count_ * bytes);
    const float sigma = 1 / std::sqrt(static_cast<float>(shape.inputs));
    const auto source = synthetic_matrix(type, shape.outputs, shape.inputs, sigma, 1);
    // By panels, as load_weights() does: the thread that packs a panel is the first to touch its memory.
    const int panels = matrix_.panels(), pieces = std::min(panels, team.size() * 8);
    for (size_t copy = 0; copy < count_; ++copy) {
      std::byte* data = memory_.data() + copy * bytes;
      team.for_tiles(pieces, [&](int i, int) {
        const int begin = panels * i / pieces, end = panels * (i + 1) / pieces;
        if (copy == 0) {
          pack_panels(matrix_, type, source, data, begin, end);
        } else {
          const size_t from = matrix_.layout.bytes * static_cast<size_t>(begin),
                       size = matrix_.layout.bytes * static_cast<size_t>(end - begin);
          std::memcpy(data + from, memory_.data() + from, size);
        }
      });
    }
  }

  const PackedMatrix& next() {
    matrix_.data = memory_.data() + turn_ * matrix_.bytes();
    turn_ = (turn_ + 1) % count_;
    return matrix_;
  }

 private:
  PackedMatrix matrix_;
  size_t count_ = 0, turn_ = 0;
  LargeBuffer memory_;
};

struct KernelResult {
  TensorType type;
  Shape shape;
  Activations activations;
  int rows;
  Work work;
  Samples seconds, of_limit;
};

// Quantized input rows in the layout of the kernel set, and memory for the outputs.
class Operands {
 public:
  Operands(const Compute& compute, Shape shape, Activations to, int rows)
      : stride_(static_cast<size_t>((shape.inputs + kBlockInputs - 1) / kBlockInputs) * activation_block_bytes(to)),
        to_(to),
        outputs_(shape.outputs),
        blocks_(stride_ * padded_rows(rows)),
        y_(static_cast<size_t>(rows) * static_cast<size_t>(shape.outputs) * sizeof(float)) {
    const std::vector<float> x = sample_inputs(static_cast<size_t>(rows) * static_cast<size_t>(shape.inputs));
    quantize_rows(compute,
                  {.x = x.data(),
                   .x_stride = static_cast<size_t>(shape.inputs),
                   .cols = shape.inputs,
                   .to = to,
                   .out = blocks_.data(),
                   .out_stride = stride_},
                  rows);
  }

  LinearArgs linear(const PackedMatrix& weights) const {
    return {.weights = &weights,
            .activations = to_,
            .x = blocks_.data(),
            .x_stride = stride_,
            .y = y_.as<float>(),
            .y_stride = static_cast<size_t>(outputs_)};
  }

 private:
  size_t stride_;
  Activations to_;
  int outputs_;
  LargeBuffer blocks_, y_;
};

// Long enough to make clock reads and loop starts negligible.
constexpr double kSampleSeconds = 0.005;

std::vector<KernelResult> measure(const KernelsOptions& o, const Compute& compute, TensorType type, Shape shape,
                                  MachineProbe& machine, std::vector<MachineRates>& probed) {
  const Activations definition = activations_for(compute.activations, panel_format(type));
  Copies weights(type, shape, static_cast<size_t>(o.megabytes) << 20, compute.team);
  std::vector<KernelResult> results;
  std::vector<Operands> operands;
  std::vector<int> uses;
  const auto use = [&](size_t i, int times) {
    for (int n = 0; n < times; ++n) {
      const LinearArgs args = operands[i].linear(weights.next());
      linears(compute, {&args, 1}, results[i].rows);
    }
  };
  for (size_t i = 0; i < o.rows.size(); ++i) {
    results.push_back(
        {type, shape, definition, o.rows[i], linear_work(weights.next(), compute.activations, o.rows[i]), {}, {}});
    operands.emplace_back(compute, shape, definition, o.rows[i]);
    use(i, 1);  // warm
    const double once = seconds_of([&] { use(i, 1); });
    uses.push_back(std::clamp(static_cast<int>(kSampleSeconds / once), 1, 100'000));
  }
  for (int repetition = 0; repetition < o.repetitions; ++repetition) {
    const MachineRates rates = machine.measure();
    probed.push_back(rates);
    for (size_t i = 0; i < results.size(); ++i) {
      const double seconds = seconds_of([&] { use(i, uses[i]); }) / uses[i];
      results[i].seconds.add(seconds);
      results[i].of_limit.add(least_seconds(results[i].work, rates) / seconds);
    }
  }
  return results;
}

nlohmann::ordered_json kernel_json(const KernelResult& r) {
  const double seconds = r.seconds.median();
  return {{"type", name(r.type)},
          {"outputs", r.shape.outputs},
          {"inputs", r.shape.inputs},
          {"activations", name(r.activations)},
          {"rows", r.rows},
          {"seconds", seconds},
          {"multiply_adds_per_second", r.work.total_multiply_adds() / seconds},
          {"bytes_per_second", r.work.bytes / seconds},
          {"of_limit", r.of_limit.median()}};
}

void print_kernels(const std::vector<KernelResult>& results, const MachineRates& machine) {
  TextTable table({"type", "activations", "shape", "rows", "us", "GMAC/s", "GB/s", "of limit", "bound by"}, 3);
  for (const KernelResult& r : results) {
    const double seconds = r.seconds.median(), multiply_adds = r.work.total_multiply_adds();
    const bool reading = r.work.bytes / machine.bandwidth >
                         multiply_adds / machine.multiply_adds[static_cast<size_t>(multiply_unit(r.activations))];
    table.add({std::string(name(r.type)), std::string(name(r.activations)),
               fmt::format("{}x{}", r.shape.outputs, r.shape.inputs), fmt::format("{}", r.rows),
               fmt::format("{:.1f}", 1e6 * seconds), fmt::format("{:.1f}", multiply_adds / seconds / 1e9),
               fmt::format("{:.2f}", r.work.bytes / seconds / 1e9), fmt::format("{:.0f} %", 100 * r.of_limit.median()),
               reading ? "memory" : "compute"});
  }
  std::printf("%s", table.text().c_str());
}

void run_kernels(const KernelsOptions& o) {
  Team team(o.threads > 0 ? o.threads : usable_cores());
  const Compute compute{choose_kernels(o.kernels), team, *find_value(kActivationsNames, o.activations)};
  const std::vector<TensorType> types = parse_types(o.types);
  std::vector<Shape> shapes;
  for (const std::string& text : o.shapes) shapes.push_back(parse_shape(text));
  std::vector<Activations> units;
  for (const TensorType type : types) {
    const Activations unit = multiply_unit(activations_for(compute.activations, panel_format(type)));
    if (std::find(units.begin(), units.end(), unit) == units.end()) units.push_back(unit);
    for (const Shape& shape : shapes) {
      if (static_cast<uint32_t>(shape.inputs) % info(type).block_elements != 0)
        throw invalid("--shapes {}x{} does not fit {}: inputs must be a multiple of {}", shape.outputs, shape.inputs,
                      name(type), info(type).block_elements);
    }
  }

  MachineProbe machine(compute, units);
  std::vector<MachineRates> probed;
  std::vector<KernelResult> results;
  {
    Progress progress;
    progress.stage("measuring");
    size_t done = 0;
    for (const TensorType type : types) {
      for (const Shape& shape : shapes) {
        progress.step(done++, types.size() * shapes.size(), name(type));
        const auto some = measure(o, compute, type, shape, machine, probed);
        results.insert(results.end(), some.begin(), some.end());
      }
    }
  }
  const MachineRates rates = median_of(probed);
  if (o.json) {
    nlohmann::ordered_json out = {{"cpu", cpu_name()},
                                  {"kernels", compute.kernels.name},
                                  {"threads", team.size()},
                                  {"machine", to_json(rates)},
                                  {"results", nlohmann::ordered_json::array()}};
    for (const KernelResult& r : results) out["results"].push_back(kernel_json(r));
    std::printf("%s\n", out.dump(2).c_str());
    return;
  }
  std::printf("%s\n%s kernels, %d threads\nlimit: %s\n\n", cpu_name().c_str(), compute.kernels.name.data(), team.size(),
              describe(rates).c_str());
  print_kernels(results, rates);
}

std::vector<std::string> activations_names() {
  std::vector<std::string> names;
  for (const auto& [value, name] : kActivationsNames) names.emplace_back(name);
  return names;
}

}  // namespace

void add_bench_kernels_command(CLI::App& bench) {
  auto o = std::make_shared<KernelsOptions>();
  CLI::App* command = bench.add_subcommand(
      "kernels", "Measure linear layers by weight type, shape and rows, and compare them with the machine's limits");
  command->add_option("--types", o->types, "weight types, as q4_0,bf16 (default: all)")
      ->type_name("TYPE,...")
      ->delimiter(',');
  command->add_option("--shapes", o->shapes, "weight shapes, as OUTPUTSxINPUTS")
      ->type_name("SHAPE,...")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("-M,--rows", o->rows, "input rows: sequences that decode, or tokens of a prompt")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command->add_option("-t,--threads", o->threads, "threads; 0: all usable cores")
      ->check(CLI::Range(0, kMaxThreads))
      ->capture_default_str();
  command
      ->add_option("--activations", o->activations,
                   "data type that the inputs of linear layers are rounded to (docs/exactness.md)")
      ->check(CLI::IsMember(activations_names()))
      ->capture_default_str();
  command->add_flag("--json", o->json, "print the results as a JSON object");
  add_kernels_option(*command, o->kernels);
  constexpr const char* kMeasurementGroup = "Measurement";
  command->add_option("-r,--repetitions", o->repetitions, "samples per case; cases take turns, the median counts")
      ->check(CLI::Range(1, 1000))
      ->group(kMeasurementGroup)
      ->capture_default_str();
  command
      ->add_option("--memory", o->megabytes,
                   "MiB of copies of each matrix, read in turn; must exceed the CPU's caches to measure memory")
      ->check(CLI::Range(1, 1 << 16))
      ->group(kMeasurementGroup)
      ->capture_default_str();
  command->callback([o] { run_kernels(*o); });
}

}  // namespace quire
