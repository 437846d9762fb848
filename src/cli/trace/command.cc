// quire report: where the time of a traced run went.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/flags/engine_options.h"
#include "cli/trace/report.h"
#include "trace/trace_summary.h"

namespace quire {
namespace {

struct ReportFlags {
  std::string file;
  int slowest = 5;
  bool json = false;
};

void run_report(const ReportFlags& flags) {
  const TraceSummary summary = summarize_trace(flags.file, static_cast<size_t>(flags.slowest));
  for (const std::string& warning : warnings_of(summary)) std::fprintf(stderr, "quire: warning: %s\n", warning.c_str());
  const std::string text = flags.json ? to_json(summary).dump(2) + "\n" : to_text(summary);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace

void add_report_command(CLI::App& app) {
  const auto flags = std::make_shared<ReportFlags>();
  CLI::App* command = app.add_subcommand(
      "report",
      "Say where the time of a run went: by phases, operations, kinds of steps and requests, from its --trace-out");
  command->add_option("file", flags->file, "the trace, also while it is being written")->type_name("FILE")->required();
  command->add_flag("--json", flags->json, "print JSON");
  command->add_option("--slowest", flags->slowest, "how many of the slowest steps to show")
      ->check(between(0, 1000))
      ->capture_default_str();
  command->callback([flags] { run_report(*flags); });
}

}  // namespace quire
