// quire imatrix: an importance matrix for quire quantize, or for llama-quantize.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <limits>
#include <memory>

#include "base/error.h"
#include "cli/calibration/calibrate.h"
#include "cli/calibration/calibration.h"
#include "cli/commands.h"
#include "cli/flags/engine_options.h"
#include "cli/output_file.h"
#include "cli/terminal/interruptible.h"
#include "cli/terminal/progress.h"
#include "cli/text/chunk_run.h"
#include "model/registry.h"

namespace quire {
namespace {

struct ImatrixFlags {
  EngineOptions engine;
  CalibrationFlags calibration;
  std::string output;
  std::vector<std::string> add;
  bool force = false;
  bool with_output = false;  // the output matrix sees all rows, not some of them, which takes longer
};

ImportanceForm form_of(const std::string& path) {
  return path.ends_with(".dat") ? ImportanceForm::kLegacy : ImportanceForm::kGguf;
}

ImportanceMatrix measure_importance_of(const ImatrixFlags& o, const std::function<void()>& check, Progress& progress) {
  const Checkpoint checkpoint = Checkpoint::open(resolve_model(o.engine.model));
  if (checkpoint.reads(o.output))
    throw invalid("-o {} is a file of {} itself, which imatrix would overwrite; choose another name", o.output,
                  o.engine.model);
  const FilePlan file =
      plan_file(checkpoint, "");  // throws before anything is computed if GGUF has no names for the model
  progress.stage("loading " + o.engine.model);
  LoadedModel model(one_chunk_at_a_time(o.engine, o.calibration.context), kScoredRows);
  const TextChunks text = read_chunks(model, o.calibration.file, o.calibration.context, o.calibration.chunks);
  InputCollector inputs(model.target.config, model.target.weights, model.runtime.cpu.compute(Activations::kF32), {});
  progress.stage("calibrating");
  calibrate(model, text, inputs, o.with_output, [&](size_t computed, size_t total) {
    check();
    progress.step(computed, total);
  });
  ImportanceMatrix matrix = measured_importance(
      file, [&](const Slot& slot) { return inputs.of(slot); }, o.with_output);
  name_text(matrix, o.calibration, text);
  return matrix;
}

void run_imatrix(ImatrixFlags& o) {
  check_output(o.output, "-o", o.force);
  ImportanceMatrix matrix;
  run_interruptible([&](const auto& check) {
    Progress progress;
    std::vector<ImportanceMatrix> others;
    for (const std::string& path : o.add) others.push_back(read_importance_matrix(path));
    matrix = measure_importance_of(o, check, progress);
    for (const ImportanceMatrix& other : others) add_importance(matrix, other);
    write_importance_matrix(matrix, o.output, form_of(o.output));
  });
  std::fprintf(stderr, "wrote %s: %zu tensors, %d chunks of %d tokens\n", o.output.c_str(), matrix.entries.size(),
               matrix.chunks, matrix.chunk_size);
}

}  // namespace

void add_imatrix_command(CLI::App& app) {
  auto o = std::make_shared<ImatrixFlags>();
  CLI::App* command = app.add_subcommand(
      "imatrix", "Measure how much each input of a model's matrices counts, for `quire quantize --imatrix`");
  add_model_options(*command, o->engine);
  for (const char* replaced : {"--max-model-len", "--max-num-batched-tokens"})
    command->remove_option(command->get_option(replaced));
  command
      ->add_option("-f,--file", o->calibration.file,
                   "calibration text: UTF-8, or a .jsonl file whose lines have \"messages\" (chats, for the model's "
                   "template) or \"text\"")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("-o,--output", o->output,
                   "file to write, in llama.cpp's format: GGUF, or the older one if the name ends in .dat")
      ->type_name("FILE")
      ->required();
  command->add_option("-c,--context", o->calibration.context, "tokens per chunk")
      ->check(between(3, std::numeric_limits<int>::max()))
      ->capture_default_str();
  command->add_option("--chunks", o->calibration.chunks, "most chunks to compute; -1: all")
      ->check(check_chunk_count())
      ->capture_default_str();
  command
      ->add_option("--in-file", o->add, "importance matrix of the same model to add, in either form; may be repeated")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command->add_flag("--process-output", o->with_output,
                    "also for the output matrix; llama.cpp's files have none by default");
  command->add_flag("--force", o->force, "overwrite an existing file");
  command->callback([o] { run_imatrix(*o); });
}

}  // namespace quire
