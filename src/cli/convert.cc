// quire convert: writes a Hugging Face directory as a GGUF file.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "base/cpu.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags/engine_options.h"
#include "cli/flags/weight_type.h"
#include "cli/output_file.h"
#include "cli/terminal/interruptible.h"
#include "cli/terminal/progress.h"
#include "model/convert/convert.h"

namespace quire {
namespace {

struct ConvertFlags {
  std::string input, output, type, name;
  int threads = 0;
  bool force = false;
};

std::string model_name(const std::string& directory) {
  const auto path = std::filesystem::weakly_canonical(directory);
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

void run_convert(const ConvertFlags& o) {
  ConvertOptions options{.type = std::nullopt, .name = o.name.empty() ? model_name(o.input) : o.name};
  if (!o.type.empty()) options.type = parse_weight_type("--type", o.type);
  check_output(o.output, {}, o.force);
  Converted converted;
  run_interruptible([&](const auto& check) {
    Progress progress;
    progress.stage("reading " + o.input);
    const Checkpoint checkpoint = Checkpoint::open(o.input);
    if (checkpoint.reads(o.output))
      throw invalid("{} is a file of {} itself, which convert would overwrite; choose another name", o.output, o.input);
    Team team(o.threads > 0 ? o.threads : usable_cores());
    progress.stage("writing tensors");
    options.progress = [&](size_t written, size_t total) {
      check();
      progress.step(written, total);
    };
    converted = convert_checkpoint(checkpoint, o.output, options, team);
  });
  for (const std::string& warning : converted.warnings) std::fprintf(stderr, "quire: warning: %s\n", warning.c_str());
  std::fprintf(stderr, "wrote %s: %zu tensors, mostly %s, %.1f MB\n", o.output.c_str(), converted.tensors,
               std::string(name(converted.type)).c_str(),
               static_cast<double>(std::filesystem::file_size(o.output)) / 1e6);
}

}  // namespace

void add_convert_command(CLI::App& app) {
  auto o = std::make_shared<ConvertFlags>();
  CLI::App* command = app.add_subcommand("convert", "Write a Hugging Face model as a GGUF file, with its tokenizer");
  command
      ->add_option("IN", o->input,
                   "directory with config.json, safetensors and tokenizer.json, or hf:ORG/REPO:safetensors")
      ->type_name("MODEL")
      ->required();
  command->add_option("OUT", o->output, "GGUF file to write")->type_name("FILE")->required();
  command->add_option("--type", o->type, "type of the matrices, such as f32, f16, bf16 or q8_0; default: as in IN")
      ->check(check_writable_type, "", "")
      ->type_name("TYPE");
  command->add_option("--name", o->name, "name of the model in the file; default: that of the directory")
      ->type_name("TEXT");
  command->add_option("-t,--threads", o->threads, "threads; 0: all usable cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_flag("--force", o->force, "overwrite an existing file");
  command->callback([o] { run_convert(*o); });
}

}  // namespace quire
