// quire quantize: writes a model in fewer bits a weight, as a GGUF file or, with --method, as a Hugging Face directory.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/cpu.h"
#include "base/error.h"
#include "base/files/whole_file.h"
#include "cli/calibration/calibration.h"
#include "cli/commands.h"
#include "cli/flags/engine_options.h"
#include "cli/flags/parsed_by.h"
#include "cli/flags/weight_type.h"
#include "cli/output_file.h"
#include "cli/quantize/allocate.h"
#include "cli/quantize/directory.h"
#include "cli/quantize/error_page.h"
#include "cli/quantize/resume.h"
#include "cli/quantize/rotated_copy.h"
#include "cli/terminal/interruptible.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/text_table.h"
#include "model/registry.h"
#include "quantize/allocation/allocation_file.h"
#include "quantize/quantize.h"

namespace quire {
namespace {

struct QuantizeFlags {
  std::string input, output, type, name, imatrix, output_type, embedding_type, report;
  std::vector<std::string> overrides;
  int threads = 0;
  bool pure = false, no_feedback = false, dry_run = false, force = false, resume = false;
  const CLI::App* command = nullptr;
  CalibrationFlags calibration;
  AllocateFlags allocate;
  DirectoryFlags directory;
};

TypeOverride parse_override(const std::string& text) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    throw invalid("--tensor-type {} is not PATTERN=TYPE, such as ffn_down=q6_k", text);
  return {text.substr(0, at), parse_writable_type("--tensor-type", text.substr(at + 1))};
}

QuantizeOptions options_of(const QuantizeFlags& o) {
  // Types of an allocation have no mix; Q4_K_M stands for it until they are known.
  QuantizeOptions options{.mix = &find_mix(o.type.empty() ? "Q4_K_M" : o.type), .pure = o.pure, .name = o.name};
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

// Throws if two of the files to write are one. Empty paths are none.
void check_distinct(std::initializer_list<std::pair<const char*, std::string>> files) {
  std::map<std::filesystem::path, const char*> seen;
  for (const auto& [flag, path] : files) {
    if (path.empty()) continue;
    const auto [place, is_new] = seen.emplace(std::filesystem::weakly_canonical(path), flag);
    if (!is_new) throw invalid("{} and {} are the same file, {}; give them different names", place->second, flag, path);
  }
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

// Of the calibration text, or as an interrupted run has measured it.
ImportanceMatrix measured_importance_of(Calibration& calibration, const FilePlan& file, PartialOutput* partial) {
  if (partial && partial->has_file(partial->importance())) return read_importance_matrix(partial->importance());
  ImportanceMatrix importance = calibration.importance(file);
  if (partial) {
    write_importance_matrix(importance, partial->importance(), ImportanceForm::kGguf);
    partial->add_file(partial->importance());
  }
  return importance;
}

void run_quantize(const QuantizeFlags& o) {
  if (o.type.empty() && o.directory.method.empty() && !o.allocate.given())
    throw CLI::RequiredError("--type, --target-bpw, --plan or --method");
  if (o.output.empty() && !o.dry_run) throw CLI::RequiredError("OUT");
  if (!o.directory.method.empty()) {
    return quantize_directory(o.directory, {.input = o.input,
                                            .output = o.output,
                                            .calibration = o.calibration,
                                            .threads = o.threads,
                                            .dry_run = o.dry_run,
                                            .force = o.force,
                                            .resume = o.resume,
                                            .command = o.command});
  }
  QuantizeOptions options = options_of(o);
  if (!o.output.empty()) check_output(o.output, {}, o.force);
  if (!o.allocate.plan_out.empty()) check_output(o.allocate.plan_out, "--plan-out", o.force);
  if (!o.report.empty()) check_output(o.report, "--report", o.force);
  check_distinct({{"OUT", o.output}, {"--plan-out", o.allocate.plan_out}, {"--report", o.report}});
  options.measure_errors = !o.report.empty();
  std::optional<QuantizePlan> plan;
  std::optional<Allocation> allocation;
  std::unique_ptr<PartialOutput> partial;
  run_interruptible([&](const auto& check) {
    keep_on_failure(partial, [&] {
      Progress progress;
      progress.stage("reading " + o.input);
      const Checkpoint original = Checkpoint::open(resolve_model(o.input));
      for (const std::string& path : {o.output, o.report, o.allocate.plan_out}) {
        if (!path.empty() && original.reads(path))
          throw invalid("{} is a file of {} itself, which quantize would overwrite; choose another name", path,
                        o.input);
      }
      if (o.resume) partial = open_partial(*o.command, original, o.output, o.force);
      Team team(o.threads > 0 ? o.threads : usable_cores());
      std::optional<RotatedCopy> rotated;
      if (o.directory.rotate) rotated.emplace(original, o.output, partial.get(), team, progress, check);
      const Checkpoint& checkpoint = rotated ? rotated->checkpoint() : original;
      const std::string input = rotated ? rotated->path().string() : o.input;
      std::optional<ImportanceMatrix> importance;
      std::optional<Calibration> calibration;
      if (!o.imatrix.empty()) {
        importance = read_importance_matrix(o.imatrix);
        options.importance_file = o.imatrix;
      }
      if (!o.calibration.file.empty()) {
        // A dry run encodes nothing, unless types are measured.
        const bool wants_feedback = !o.no_feedback && (!o.dry_run || o.allocate.given());
        EngineOptions engine;
        engine.model = input;
        engine.threads = o.threads;
        calibration.emplace(std::move(engine), o.calibration,
                            Calibration::Wants{.gram = wants_feedback, .output = wants_feedback},
                            folder_of_hidden_states(o.output), progress, check);
        const FilePlan file = plan_file(checkpoint, options.name);
        if (!importance) importance = measured_importance_of(*calibration, file, partial.get());
        if (!o.no_feedback) {
          options.inputs = [&, config = file.config](const PlannedTensor& tensor, size_t item) {
            if (is_output(tensor, config)) return calibration->inputs_of_output();
            return inputs_of(tensor, item, [&](const Slot& slot) { return calibration->inputs_of(slot); });
          };
        }
      }
      if (importance) options.importance = &*importance;
      if (o.allocate.given()) {
        const bool is_measured = partial && partial->has_file(partial->types());
        AllocateFlags flags = o.allocate;
        if (is_measured) flags = {.target = {}, .plan = partial->types()};
        allocation = allocation_for(flags, {.checkpoint = checkpoint,
                                            .input = input,
                                            .output = o.output,
                                            .calibration = o.calibration,
                                            .options = options,
                                            .threads = o.threads,
                                            .progress = progress,
                                            .check = check});
        options.types = allocation->types();
        if (partial && o.allocate.target && !is_measured) {
          write_allocation(*allocation, partial->types());
          partial->add_file(partial->types());
        }
        if (!o.allocate.plan_out.empty()) write_allocation(*allocation, o.allocate.plan_out);
      }
      plan = plan_quantization(checkpoint, options);
      if (allocation) options.mix = &mix_of(plan->file.main_type());
      if (rotated)
        plan->warnings.insert(plan->warnings.begin(), rotated->warnings().begin(), rotated->warnings().end());
      if (o.dry_run) return;
      progress.stage("quantizing tensors");
      const auto step = [&](size_t written, size_t total) {
        check();
        progress.step(written, total, written < total ? plan->changes[written].name : "");
      };
      write_quantized(checkpoint, *plan, options, o.output, team, step, partial.get());
      if (partial) partial->finish();
    });
  });
  const std::string types = allocation ? "types by plan" : std::string(options.mix->name);
  if (!o.report.empty())
    write_whole_file(o.report, error_page({o.input, o.output, types}, *plan, allocation ? &*allocation : nullptr));
  if (allocation)
    print_allocation(*allocation);
  else if (o.dry_run)
    print_plan(*plan);
  print_warnings(*plan);
  if (!o.dry_run)
    std::fprintf(stderr, "wrote %s: %s, %zu tensors, %.1f MB, %.3f bits a weight\n", o.output.c_str(), types.c_str(),
                 plan->changes.size(), static_cast<double>(std::filesystem::file_size(o.output)) / 1e6,
                 plan->bits_per_weight());
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
  add_allocate_flags(*command, o->allocate);
  // Flags of a mix: a plan has the types of all matrices.
  const auto of_mix = [&](CLI::Option* option) {
    for (CLI::Option* other : {method, o->allocate.target_option, o->allocate.plan_option}) option->excludes(other);
    return option;
  };
  for (CLI::Option* allocate : {o->allocate.target_option, o->allocate.plan_option}) allocate->excludes(method);
  of_mix(command->add_option("--type", o->type,
                             "type of most matrices, or a mix of types as llama-quantize names it: " + mix_names()))
      ->check(parsed_by([](const std::string& text) { find_mix(text); }))
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
  of_mix(command->add_flag("--pure", o->pure, "one type for all matrices, without the exceptions of the mix"));
  of_mix(command->add_option("--output-tensor-type", o->output_type, "type of the output matrix"))
      ->check(check_writable_type, "", "")
      ->type_name("TYPE");
  of_mix(command->add_option("--token-embedding-type", o->embedding_type, "type of the token embeddings"))
      ->check(check_writable_type, "", "")
      ->type_name("TYPE");
  of_mix(
      command->add_option("--tensor-type", o->overrides,
                          "type of the tensors in whose names the regular expression PATTERN is found, such as "
                          "'ffn_down=q6_k' or 'blk\\.[0-3]\\.=q8_0'; may be repeated: the first that matches counts"))
      ->check(parsed_by([](const std::string& text) { parse_override(text); }))
      ->type_name("PATTERN=TYPE")
      ->allow_extra_args(false);
  CLI::Option* const dry_run =
      command->add_flag("--dry-run", o->dry_run, "print what would become of each tensor, and write nothing");
  command
      ->add_option("--report", o->report,
                   "also write a page for a browser: the error of each tensor, the worst of them, charts")
      ->excludes(method)
      ->excludes(dry_run)
      ->type_name("FILE");
  command->add_option("--name", o->name, "name of the model in a file made of a directory; default: the directory's")
      ->excludes(method)
      ->type_name("TEXT");
  command->add_option("-t,--threads", o->threads, "threads; 0: all usable cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_flag(
      "--force", o->force,
      "overwrite an existing file, or replace an existing model directory; with --resume, also start over "
      "if what is kept is of other flags or files");
  CLI::Option* const rotate =
      command
          ->add_flag(
              "--rotate", o->directory.rotate,
              "first rotate the hidden states, which spreads outliers over all dimensions (QuaRot); the rotation is "
              "folded into the weights. Takes room for a copy of the model next to OUT")
          ->excludes(dry_run);
  command
      ->add_flag("--no-online-rotation", o->directory.no_online_rotation,
                 "smoothquant, fp8: do not rotate the inputs of down projections at run time, for programs that ignore "
                 "transform_config")
      ->needs(rotate)
      ->needs(method);
  command
      ->add_flag("--resume", o->resume,
                 "if the run ends early, keep what is finished in OUT.partial; the same command continues it")
      ->excludes(dry_run);
  o->command = command;
  command->callback([o] { run_quantize(*o); });
}

}  // namespace quire
