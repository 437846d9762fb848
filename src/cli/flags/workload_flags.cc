#include "cli/flags/workload_flags.h"

namespace quire {

void add_trace_flags(CLI::App& command, WorkloadOptions& workload, const std::string& group,
                     const std::string& trace_help) {
  const auto add = [&](const char* name, auto& value, const std::string& help) {
    return command.add_option(name, value, help)->group(group);
  };
  add("--trace", workload.trace, trace_help)->type_name("FILE");
  add("--skip", workload.skip, "requests to leave out at the start")->check(CLI::NonNegativeNumber);
  add("--time-scale", workload.time_scale, "multiplies the times; 0.1: ten times as fast")->check(CLI::PositiveNumber);
  add("--length-scale", workload.length_scale, "multiplies the lengths")->check(CLI::PositiveNumber);
  add("--max-input", workload.max_input_tokens, "shorten longer prompts to this many tokens")
      ->check(CLI::PositiveNumber);
  add("--max-output", workload.max_output_tokens, "shorten longer answers to this many tokens")
      ->check(CLI::PositiveNumber);
}

}  // namespace quire
