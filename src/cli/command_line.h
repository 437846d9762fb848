// The command line in plain words: error messages with suggestions, help that fits a terminal, shell completion.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace quire {

// The message for a command line that CLI11 refused: "--top-p must be between 0 and 1, not 1.5".
std::string describe(const CLI::ParseError& error, const CLI::App& app);

// Help of at most 80 columns, with the help of each flag below its name.
std::shared_ptr<CLI::FormatterBase> make_help_formatter();

// Reads `flag = value` lines for the command `command`: --config.
std::shared_ptr<CLI::Config> make_config_reader(const std::string& command);

// A completion script for bash, zsh or fish.
std::string completion_script(const CLI::App& app, const std::string& shell);

// All names of commands, and all long flags of one.
std::vector<std::string> command_names(const CLI::App& app);
std::vector<std::string> flag_names(const CLI::App& command);

}  // namespace quire
