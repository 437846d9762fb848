// quire synth: writes a model of a given shape with random weights.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags/engine_options.h"
#include "cli/flags/weight_type.h"
#include "cli/output_file.h"
#include "cli/terminal/progress.h"
#include "model/synth.h"

namespace quire {
namespace {

struct SynthOptions {
  std::string shape = "llama-3.2-1b", type = "q4_0", output;
  uint64_t seed = 1;
  bool force = false;
};

void run_synth(const SynthOptions& o) {
  const TensorType type = parse_weight_type("--type", o.type);
  check_output(o.output, "--output", o.force);
  {
    Progress progress;
    progress.stage("writing tensors");
    write_synthetic_model(o.output, find_synth_shape(o.shape), type, o.seed,
                          [&](size_t written, size_t total) { progress.step(written, total); });
  }
  std::fprintf(stderr, "wrote %s: %.1f MB\n", o.output.c_str(),
               static_cast<double>(std::filesystem::file_size(o.output)) / 1e6);
}

}  // namespace

void add_synth_command(CLI::App& app) {
  auto o = std::make_shared<SynthOptions>();
  CLI::App* command =
      app.add_subcommand("synth", "Write a GGUF model of a given shape with random weights, for speed measurements");
  std::vector<std::string> shapes;
  for (const SynthShape& shape : synth_shapes()) shapes.emplace_back(shape.name);
  command->add_option("-o,--output", o->output, "GGUF file to write")->type_name("FILE")->required();
  command->add_option("--shape", o->shape, "shape of the model")->check(CLI::IsMember(shapes))->capture_default_str();
  command->add_option("--type", o->type, "type of the matrices: " + weight_type_names())
      ->type_name("TYPE")
      ->capture_default_str();
  command->add_option("--seed", o->seed, "seed of the random weights")
      ->check(check_whole_number, "", "")
      ->capture_default_str();
  command->add_flag("--force", o->force, "overwrite an existing file");
  command->callback([o] { run_synth(*o); });
}

}  // namespace quire
