// The commands: each adds its subcommand with a callback that runs it. A callback throws quire::Error (exit code 1), or
// CLI::ParseError for a bad command line (exit code 2).
#pragma once

#include <CLI/CLI.hpp>

namespace quire {

void add_run_command(CLI::App& app);
void add_serve_command(CLI::App& app);
void add_batch_command(CLI::App& app);
void add_pull_command(CLI::App& app);
void add_list_command(CLI::App& app);
void add_show_command(CLI::App& app);
void add_rm_command(CLI::App& app);
void add_inspect_command(CLI::App& app);
void add_plan_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_lab_command(CLI::App& app);
void add_verify_command(CLI::App& app);
void add_replay_command(CLI::App& app);
void add_report_command(CLI::App& app);
void add_perplexity_command(CLI::App& app);
void add_compare_command(CLI::App& app);
void add_tokenize_command(CLI::App& app);
void add_template_command(CLI::App& app);
void add_grammar_command(CLI::App& app);
void add_convert_command(CLI::App& app);
void add_quantize_command(CLI::App& app);
void add_imatrix_command(CLI::App& app);
void add_synth_command(CLI::App& app);
void add_completion_command(CLI::App& app);
void add_help_command(CLI::App& app);

// In the order of the help.
inline constexpr void (*kCommands[])(CLI::App&) = {
    add_run_command,      add_serve_command,    add_batch_command,    add_pull_command,       add_list_command,
    add_show_command,     add_rm_command,       add_inspect_command,  add_plan_command,       add_bench_command,
    add_lab_command,      add_verify_command,   add_replay_command,   add_report_command,     add_perplexity_command,
    add_compare_command,  add_tokenize_command, add_template_command, add_grammar_command,    add_convert_command,
    add_quantize_command, add_imatrix_command,  add_synth_command,    add_completion_command, add_help_command,
};

}  // namespace quire
