// quire replay: computes a recorded run again and compares it bit by bit.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/files/checksum.h"
#include "base/files/mapped_file.h"
#include "base/text/quote.h"
#include "cli/commands.h"
#include "cli/flags/engine_options.h"
#include "cli/flags/process_flags.h"
#include "cli/terminal/progress.h"
#include "engine/ranks/agreement.h"
#include "engine/step/replay.h"
#include "kernels/kernels.h"
#include "model/registry.h"

namespace quire {
namespace {

struct ReplayOptions {
  std::string file;
  EngineOptions engine;
  ProcessFlags processes;
};

std::string text_of(const Model& model, TokenId token) {
  if (!model.text.tokenizer) return fmt::format("{}", token);
  return fmt::format("{} {}", token, quote(model.text.tokenizer->token_bytes(token)));
}

void run_replay(ReplayOptions o) {
  const bool follows = connect_processes(o.processes, o.engine);
  RecordingReader reader(o.file);
  const RecordingHeader& header = reader.header();
  const std::string name = o.engine.model.empty() ? header.model : o.engine.model;
  Progress progress;
  if (!follows) progress.stage("loading " + name);
  Runtime runtime(o.engine);
  const Checkpoint checkpoint = Checkpoint::open(resolve_model(name));
  Model model = read_model(checkpoint);
  if (model_identity(checkpoint, model.config, header.activations) != header.identity)
    throw invalid("{} was recorded with another model or version than {}; name its model with -m", o.file, quote(name));
  ProcessGroup* const processes = o.engine.processes.get();
  if (processes) {
    require_same(*processes, {{"kernels", std::string(runtime.backend().name())},
                              {"recording", fmt::format("{:016x}", checksum(MappedFile(o.file).bytes()))}});
  }
  model.weights =
      load_weights(checkpoint, model.config, runtime.backend(), runtime.team, {.memory = runtime.memory.left()});
  Replay replay = processes ? Replay(header, model, runtime, *processes, rank_patience(o.engine.rank_timeout, false))
                            : Replay(header, model, runtime, o.engine.tensor_parallel_size);
  if (follows) return replay.follow();
  progress.stage("computing the steps again");
  int steps = 0;
  while (const auto step = reader.next()) {
    ++steps;
    const auto difference = replay.run(*step);
    if (!difference) continue;
    progress.clear();
    std::string recorded;
    for (const TokenId token : difference->recorded) recorded += " " + text_of(model, token);
    throw invalid("step {} differs: sequence {}, logits after position {}. Recorded:{}. Most probable now: {}", steps,
                  static_cast<uint64_t>(difference->sequence), difference->position,
                  recorded.empty() ? " no token" : recorded, text_of(model, difference->most_probable));
  }
  progress.clear();
  if (!reader.is_complete())
    std::fprintf(stderr, "quire: warning: %s lacks its end: the run crashed, or the file was cut\n", o.file.c_str());
  const std::string summary = fmt::format(
      "{} steps, {} rows: all {} rows of logits are equal bit by bit (recorded with {} kernels, replayed with {}, {} "
      "threads{})",
      steps, replay.rows(), replay.logits(), header.kernels, runtime.backend().name(), runtime.team.size(),
      o.engine.tensor_parallel_size > 1 ? fmt::format(", {} ranks", o.engine.tensor_parallel_size) : "");
  std::printf("%s\n", summary.c_str());
}

}  // namespace

void add_replay_command(CLI::App& app) {
  auto o = std::make_shared<ReplayOptions>();
  o->engine.model.clear();
  CLI::App* command = app.add_subcommand(
      "replay",
      "Compute the steps that --record wrote again, and compare all logits bit by bit. Exit code 1 if any differ");
  command->add_option("file", o->file, "the recording")->type_name("FILE")->required();
  command->add_option("-m,--model", o->engine.model, "the model (default: the recorded name)")->type_name("MODEL");
  command->add_option("-t,--threads", o->engine.threads, "threads; 0: all usable cores")
      ->check(CLI::Range(0, kMaxThreads))
      ->capture_default_str();
  add_ranks_option(*command, o->engine.tensor_parallel_size);
  add_process_options(*command, o->processes, o->engine);
  add_kernels_option(*command, o->engine.kernels);
  command->callback([o] { run_replay(*o); });
}

}  // namespace quire
