// quire lab: every technique against its absence, as pages with figures.

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/files/whole_file.h"
#include "base/text/nearest.h"
#include "cli/commands.h"
#include "cli/flags/engine_options.h"
#include "cli/lab/experiment.h"
#include "cli/lab/page.h"
#include "cli/terminal/interruptible.h"
#include "engine/runtime.h"
#include "kernels/kernels.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr int kLeastContext = 256;  // of the model, for all experiments

struct LabFlags {
  LabOptions options;
  std::vector<std::string> names;
  std::string out = "lab";
  bool list = false, json = false;
};

// All, or those that are named, in the order of the index.
std::vector<const Experiment*> chosen_experiments(const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const Experiment* e : experiments()) known.emplace_back(e->name);
  for (const std::string& name : names) {
    if (std::ranges::find(known, name) != known.end()) continue;
    const std::string hint = did_you_mean(name, known);
    throw CLI::ValidationError(fmt::format("unknown experiment '{}'.{}", name,
                                           hint.empty() ? " `quire lab --list` lists the experiments" : hint));
  }
  std::vector<const Experiment*> chosen;
  for (const Experiment* e : experiments()) {
    if (names.empty() || std::ranges::find(names, e->name) != names.end()) chosen.push_back(e);
  }
  return chosen;
}

void list_experiments() {
  for (const Experiment* e : experiments())
    std::printf("%-16s %s\n", std::string(e->name).c_str(), std::string(e->question).c_str());
}

// The folder of the pages, which replace those of an earlier run.
class LabFolder {
 public:
  // Throws Error: the name is no folder, or what it has is not from an earlier run.
  explicit LabFolder(const std::string& path) : path_(path) {
    std::error_code error;
    if (fs::exists(path_, error) && !fs::is_directory(path_, error))
      throw invalid("--out {} is not a folder; choose another name", path);
    fs::create_directories(path_, error);
    if (error) throw invalid("--out {} cannot be made: {}", path, error.message());
    constexpr size_t kMostBytes = size_t{1} << 20;
    if (fs::exists(index(), error)) earlier_ = read_text_file(index(), kMostBytes);
    if (!earlier_.empty() && !is_lab_index(earlier_))
      throw invalid("--out {} has a README.md that `quire lab` did not write; choose another folder", path);
  }

  void write(const Experiment& e, const LabResult& r, const LabMachine& machine) {
    const std::vector<std::string> files = figure_files(e, r);
    for (size_t i = 0; i < files.size(); ++i) write_whole_file(path_ / files[i], r.figures[i].svg);
    write_whole_file(path_ / fmt::format("{}.md", e.name), experiment_page(e, r, machine));
    summaries_.push_back({&e, r.summary});
    write_whole_file(index(), lab_index(summaries_, earlier_));
  }

 private:
  fs::path index() const { return path_ / "README.md"; }

  fs::path path_;
  std::string earlier_;  // the index of the run before
  std::vector<LabSummary> summaries_;
};

LabMachine this_lab_machine(const LabOptions& o) {
  Runtime runtime(o.engine);
  return {.processor = cpu_name(),
          .kernels = std::string(runtime.cpu.compute(Activations::kF32).kernels.name),
          .model = o.engine.model,
          .version = QUIRE_VERSION,
          .date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr))),
          .threads = runtime.team.size(),
          .quick = o.quick};
}

void run_lab(LabFlags& f) {
  if (f.list) return list_experiments();
  const std::vector<const Experiment*> chosen = chosen_experiments(f.names);
  if (const int context = context_of(f.options.engine); context < kLeastContext)
    throw unsupported("{} has a context of {} tokens; the experiments need at least {}", f.options.engine.model,
                      context, kLeastContext);
  LabFolder folder(f.out);
  const LabMachine machine = this_lab_machine(f.options);
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  std::vector<std::string_view> failed;
  run_interruptible([&](const auto& check) {
    f.options.check = check;
    for (const Experiment* e : chosen) {
      LabResult result;
      try {
        Progress progress;
        result = e->run(f.options, progress);
      } catch (const Error& error) {
        if (chosen.size() == 1) throw;
        std::fprintf(stderr, "quire: %s: %s\n", std::string(e->name).c_str(), error.what());
        failed.push_back(e->name);
        continue;  // the others can still run
      }
      folder.write(*e, result, machine);
      if (f.json)
        results.push_back(lab_json(*e, result));
      else
        std::printf("%-16s %s\n", std::string(e->name).c_str(), result.summary.c_str());
      std::fflush(stdout);
    }
  });
  if (f.json)
    std::printf("%s\n",
                nlohmann::ordered_json{{"machine", lab_json(machine)}, {"experiments", results}}.dump(2).c_str());
  else
    std::printf("The pages are in %s: begin with README.md.\n", f.out.c_str());
  if (!failed.empty())
    throw invalid("{} of {} experiments failed (see above): {}", failed.size(), chosen.size(), fmt::join(failed, ", "));
}

}  // namespace

void add_lab_command(CLI::App& app) {
  const auto f = std::make_shared<LabFlags>();
  CLI::App* command = app.add_subcommand("lab",
                                         "Measure what each technique is worth: run it against its absence, draw a "
                                         "figure, and compare the numbers with what "
                                         "theory foretells");
  std::vector<std::string> names;
  for (const Experiment* e : experiments()) names.emplace_back(e->name);
  command->add_option("NAME", f->names, fmt::format("experiments to run (default: all): {}", fmt::join(names, ", ")))
      ->type_name("");
  EngineOptions& engine = f->options.engine;
  engine.model = "smollm2";
  add_model_options(*command, engine);
  // The experiments choose these.
  for (const char* replaced : {"--max-model-len", "--kv-cache-size", "--max-num-batched-tokens", "--device",
                               "--gpu-memory-utilization", "--pack-cache"})
    command->remove_option(command->get_option(replaced));
  command->get_option("--model")->required(false)->capture_default_str();
  command->add_flag("--list", f->list, "list the experiments and the question that each answers");
  command->add_flag("--quick", f->options.quick, "smaller sizes and fewer repetitions: all in about five minutes");
  command->add_option("--out", f->out, "folder for the pages: Markdown with figures, README.md first")
      ->type_name("DIR")
      ->capture_default_str();
  command
      ->add_option(
          "--trace", f->options.trace,
          "for paging: lengths of real requests, a trace of Azure (CSV) or Mooncake (JSON lines); default: drawn "
          "from a distribution")
      ->type_name("FILE");
  command->add_flag("--json", f->json, "print the numbers as a JSON object when all is done");
  command->callback([f] { run_lab(*f); });
}

}  // namespace quire
