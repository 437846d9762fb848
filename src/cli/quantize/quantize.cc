// quire quantize: writes a model in fewer bits a weight, as a GGUF file or, with --method, as a Hugging Face directory.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/cpu.h"
#include "base/error.h"
#include "cli/calibration/calibration.h"
#include "cli/commands.h"
#include "cli/flags/engine_options.h"
#include "cli/flags/parsed_by.h"
#include "cli/flags/weight_type.h"
#include "cli/output_file.h"
#include "cli/quantize/directory.h"
#include "cli/terminal/interruptible.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/text_table.h"
#include "model/registry.h"
#include "quantize/quantize.h"

namespace quire {
namespace {

struct QuantizeFlags {
  std::string input, output, type, name, imatrix, output_type, embedding_type;
  std::vector<std::string> overrides;
  int threads = 0;
  bool pure = false, no_feedback = false, dry_run = false, force = false;
  CalibrationFlags calibration;
  DirectoryFlags directory;
};

TypeOverride parse_override(const std::string& text) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    throw invalid("--tensor-type {} is not PATTERN=TYPE, such as ffn_down=q6_k", text);
  return {text.substr(0, at), parse_writable_type("--tensor-type", text.substr(at + 1))};
}

QuantizeOptions options_of(const QuantizeFlags& o) {
  QuantizeOptions options{.mix = &find_mix(o.type), .pure = o.pure, .name = o.name};
  if (!o.output_type.empty()) options.output_type = parse_writable_type("--output-tensor-type", o.output_type);
  if (!o.embedding_type.empty())
    options.embedding_type = parse_writable_type("--token-embedding-type", o.embedding_type);
  for (const std::string& text : o.overrides) options.overrides.push_back(parse_override(text));
  if (options.name.empty()) {
    const auto path = std::filesystem::weakly_canonical(o.input);
    options.name = (path.has_filename() ? path : path.parent_path()).filename().string();
  }
  return options;
}

std::string megabytes(uint64_t bytes) { return fmt::format("{:.2f}", static_cast<double>(bytes) / 1e6); }

void print_plan(const QuantizePlan& plan) {
  TextTable table({"tensor", "from", "to", "MB", "bits"}, 3);
  for (const TensorChange& change : plan.changes) {
    const double bits = 8.0 * static_cast<double>(change.bytes) / static_cast<double>(change.elements);
    table.add(
        {change.name, change.from, std::string(name(change.to)), megabytes(change.bytes), fmt::format("{:.4g}", bits)});
  }
  table.add({"all", "", "", megabytes(plan.bytes()), fmt::format("{:.4g}", plan.bits_per_weight())});
  std::fputs(table.text().c_str(), stdout);
}

void print_warnings(const QuantizePlan& plan) {
  for (const std::string& warning : plan.warnings) std::fprintf(stderr, "quire: warning: %s\n", warning.c_str());
}

void run_quantize(const QuantizeFlags& o) {
  if (o.type.empty() && o.directory.method.empty()) throw CLI::RequiredError("--type or --method");
  if (o.output.empty() && !o.dry_run) throw CLI::RequiredError("OUT");
  if (!o.directory.method.empty()) {
    return quantize_directory(o.directory, {.input = o.input,
                                            .output = o.output,
                                            .calibration = o.calibration,
                                            .threads = o.threads,
                                            .dry_run = o.dry_run,
                                            .force = o.force});
  }
  QuantizeOptions options = options_of(o);
  if (!o.output.empty()) check_output(o.output, {}, o.force);
  std::optional<QuantizePlan> plan;
  run_interruptible([&](const auto& check) {
    Progress progress;
    progress.stage("reading " + o.input);
    const Checkpoint checkpoint = Checkpoint::open(resolve_model(o.input));
    std::optional<ImportanceMatrix> importance;
    std::optional<Calibration> calibration;
    if (!o.imatrix.empty()) {
      importance = read_importance_matrix(o.imatrix);
      options.importance_file = o.imatrix;
    }
    if (!o.calibration.file.empty()) {
      EngineOptions engine;
      engine.model = o.input;
      engine.threads = o.threads;
      calibration.emplace(std::move(engine), o.calibration,
                          Calibration::Wants{.gram_bytes = o.no_feedback || o.dry_run ? 0 : Calibration::kGramBytes},
                          progress, check);
      if (!importance) importance = calibration->importance(plan_file(checkpoint, options.name));
      if (!o.no_feedback) {
        options.inputs = [&](const PlannedTensor& tensor, size_t item) {
          return tensor.layer < 0 ? nullptr : inputs_of(tensor, item, calibration->inputs_for(tensor.layer));
        };
      }
    }
    if (importance) options.importance = &*importance;
    if (!o.output.empty() && checkpoint.reads(o.output))
      throw invalid("{} is a file of {} itself, which quantize would overwrite; choose another name", o.output,
                    o.input);
    plan = plan_quantization(checkpoint, options);
    if (o.dry_run) return;
    Team team(o.threads > 0 ? o.threads : usable_cores());
    progress.stage("quantizing tensors");
    write_quantized(checkpoint, *plan, options, o.output, team, [&](size_t written, size_t total) {
      check();
      progress.step(written, total, written < total ? plan->changes[written].name : "");
    });
  });
  if (o.dry_run) print_plan(*plan);
  print_warnings(*plan);
  if (!o.dry_run)
    std::fprintf(stderr, "wrote %s: %s, %zu tensors, %.1f MB, %.3f bits a weight\n", o.output.c_str(),
                 std::string(options.mix->name).c_str(), plan->changes.size(),
                 static_cast<double>(std::filesystem::file_size(o.output)) / 1e6, plan->bits_per_weight());
}

std::string mix_names() {
  std::string names;
  for (const Mix& mix : mixes()) names += (names.empty() ? "" : ", ") + std::string(mix.name);
  return names;
}

}  // namespace

void add_quantize_command(CLI::App& app) {
  auto o = std::make_shared<QuantizeFlags>();
  CLI::App* command =
      app.add_subcommand("quantize", "Write a model in fewer bits a weight: a GGUF file or a Hugging Face directory");
  command->add_option("IN", o->input, "GGUF file, Hugging Face directory or registered name; may be quantized already")
      ->type_name("MODEL")
      ->required();
  command->add_option("OUT", o->output, "GGUF file to write, or directory with --method; not needed with --dry-run")
      ->type_name("FILE");
  add_directory_flags(*command, o->directory);
  CLI::Option* const method = o->directory.method_option;
  command
      ->add_option("--type", o->type,
                   "type of most matrices, or a mix of types as llama-quantize names it: " + mix_names())
      ->check(parsed_by([](const std::string& text) { find_mix(text); }))
      ->excludes(method)
      ->type_name("TYPE");
  command
      ->add_option("--imatrix", o->imatrix,
                   "importance matrix (llama.cpp's imatrix file, GGUF or .dat): inputs that are large count more")
      ->excludes(method)
      ->type_name("FILE");
  CLI::Option* const calibrate = add_calibration_flags(*command, o->calibration);
  command
      ->add_flag("--no-feedback", o->no_feedback,
                 "with --calibrate: measure importance only, and do not let later weights make up for the errors of "
                 "earlier ones")
      ->needs(calibrate)
      ->excludes(method);
  command->add_flag("--pure", o->pure, "one type for all matrices, without the exceptions of the mix")
      ->excludes(method);
  command->add_option("--output-tensor-type", o->output_type, "type of the output matrix")
      ->check(check_writable_type, "", "")
      ->excludes(method)
      ->type_name("TYPE");
  command->add_option("--token-embedding-type", o->embedding_type, "type of the token embeddings")
      ->check(check_writable_type, "", "")
      ->excludes(method)
      ->type_name("TYPE");
  command
      ->add_option("--tensor-type", o->overrides,
                   "type of the tensors in whose names the regular expression PATTERN is found, such as "
                   "'ffn_down=q6_k' or 'blk\\.[0-3]\\.=q8_0'; may be repeated: the first that matches counts")
      ->check(parsed_by([](const std::string& text) { parse_override(text); }))
      ->excludes(method)
      ->type_name("PATTERN=TYPE")
      ->allow_extra_args(false);
  command->add_flag("--dry-run", o->dry_run, "print what would become of each tensor, and write nothing");
  command->add_option("--name", o->name, "name of the model in a file made of a directory; default: the directory's")
      ->excludes(method)
      ->type_name("TEXT");
  command->add_option("-t,--threads", o->threads, "threads; 0: all usable cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_flag("--force", o->force, "overwrite an existing file, or replace an existing model directory");
  command->callback([o] { run_quantize(*o); });
}

}  // namespace quire
