// quire bench speculative: what each drafter of speculative decoding gains, compared with what theory expects.

#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/bench/bench.h"
#include "cli/bench/speculation_report.h"
#include "cli/flags/choice_flag.h"
#include "cli/flags/engine_options.h"
#include "engine/option_names.h"

namespace quire {
namespace {

struct SpeculativeFlags {
  SpeculationOptions options;
  std::vector<std::string> drafters{"ngram"};
  std::string suite, prompts;
  bool json = false;
};

std::vector<std::string> drafters_and_auto() {
  std::vector<std::string> names = names_of(kSpeculationNames);
  std::erase(names, name(Speculation::kOff));
  return names;
}

void check_speculation(SpeculativeFlags& f) {
  if (f.suite.empty()) f.suite = f.prompts.empty() ? "copy" : "chat";
  if (f.suite == "chat" && f.prompts.empty()) throw CLI::RequiredError("--prompts (for --suite chat)");
  if (f.suite != "chat" && !f.prompts.empty())
    throw CLI::ValidationError("--suite " + f.suite + " has its own prompts; leave out --prompts");
}

std::vector<BenchPrompt> prompts_of(const SpeculativeFlags& f) {
  if (!f.prompts.empty()) return read_prompts(f.prompts);
  return f.suite == "copy" ? copy_prompts() : misleading_prompts();
}

void measure_speculation(SpeculativeFlags& f) {
  check_speculation(f);
  SpeculationReport report{
      .suite = f.prompts.empty() ? f.suite : f.prompts, .prompts = 0, .options = f.options, .drafters = {}};
  const std::vector<BenchPrompt> prompts = prompts_of(f);
  report.prompts = prompts.size();
  {
    Progress progress;
    for (const std::string& drafter : f.drafters)
      report.drafters.push_back(
          measure_drafter(find_value(kSpeculationNames, drafter).value(), f.options, prompts, progress));
  }
  if (f.json)
    std::printf("%s\n", to_json(report).dump(2).c_str());
  else
    print_tables(report);
}

}  // namespace

void add_bench_speculative_command(CLI::App& bench) {
  const auto f = std::make_shared<SpeculativeFlags>();
  EngineOptions& engine = f->options.engine;
  CLI::App* command = bench.add_subcommand("speculative",
                                           "Measure what each drafter of speculative decoding gains, compared with "
                                           "what its acceptance and the cost of steps "
                                           "predict. Exit code 1 if an answer changes");
  add_model_options(*command, engine);
  add_chat_template_options(*command, engine);
  command
      ->add_option("--speculative", f->drafters,
                   "drafters to measure, one after the other, separated by commas (default: ngram)")
      ->delimiter(',')
      ->check(CLI::IsMember(drafters_and_auto()))
      ->type_name("LIST");
  add_drafter_options(*command, engine);
  command
      ->add_option("--suite", f->suite,
                   "copy: 20 built-in prompts whose answers repeat much of them; misleading: 20 whose words are "
                   "followed by others each time (with --temp 1.5); chat: those of --prompts (default: chat with "
                   "--prompts, otherwise copy)")
      ->check(CLI::IsMember({"copy", "misleading", "chat"}));
  command
      ->add_option("--prompts", f->prompts,
                   "file of JSON lines: {\"prompt\": \"...\"}, or {\"turns\": [\"...\"]} as in MT-bench, of which the "
                   "first turn counts")
      ->type_name("FILE");
  command->add_option("-n,--generate", f->options.tokens, "most tokens of an answer")
      ->check(between(2, 1 << 20))
      ->capture_default_str();
  command->add_option("--parallel", f->options.parallel, "prompts that run together")
      ->check(between(1, kMaxNumSeqs))
      ->capture_default_str();
  command->add_option("--temp,--temperature", f->options.temperature, "temperature of sampling; 0: greedy")
      ->check(CLI::Range(0.0, 10.0))
      ->capture_default_str();
  command->add_flag("--json", f->json, "print the results as a JSON object");
  command->callback([f] { measure_speculation(*f); });
}

}  // namespace quire
