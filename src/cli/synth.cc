// quire synth: a model of a given shape with random weights.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "model/synth.h"

namespace quire {
namespace {

struct SynthOptions {
  std::string shape = "llama-3.2-1b", type = "q4_0", output;
  uint64_t seed = 1;
};

void run_synth(const SynthOptions& o) {
  std::string upper = o.type;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (upper.ends_with("_K_M") || upper.ends_with("_K_S")) upper.resize(upper.size() - 2);  // one type for all matrices
  const auto type = tensor_type_from_name(upper);
  if (!type) throw invalid("--type '{}' is no tensor type", o.type);
  write_synthetic_model(o.output, find_synth_shape(o.shape), *type, o.seed);
  std::fprintf(stderr, "%s: %ju MiB\n", o.output.c_str(),
               static_cast<uintmax_t>(std::filesystem::file_size(o.output) >> 20));
}

}  // namespace

void add_synth_command(CLI::App& app) {
  auto o = std::make_shared<SynthOptions>();
  CLI::App* command =
      app.add_subcommand("synth", "Write a model of a given shape with random weights: to measure without weights");
  std::vector<std::string> shapes;
  for (const SynthShape& shape : synth_shapes()) shapes.emplace_back(shape.name);
  command->add_option("--shape", o->shape, "the model's shape")->check(CLI::IsMember(shapes))->capture_default_str();
  command
      ->add_option("--type", o->type, "of the matrices: f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k")
      ->capture_default_str();
  command->add_option("--seed", o->seed, "of the random weights")
      ->check(check_whole_number, "", "")
      ->capture_default_str();
  command->add_option("-o,--output", o->output, "the GGUF file to write")->required();
  command->callback([o] { run_synth(*o); });
}

}  // namespace quire
