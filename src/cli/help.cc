// quire help, quire completion.

#include <algorithm>
#include <iostream>
#include <memory>

#include "base/text/nearest.h"
#include "cli/command_line.h"
#include "cli/commands.h"

namespace quire {

void add_help_command(CLI::App& app) {
  auto names = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand("help", "Describe quire or one of its commands");
  command->add_option("COMMAND", *names, "a command, and a command of it: `quire help bench serve`")
      ->expected(0, 2)
      ->type_name("");
  command->callback([&app, names] {
    CLI::App* chosen = &app;
    std::string path = app.get_name();
    for (const std::string& name : *names) {
      const auto known = command_names(*chosen);
      if (std::ranges::find(known, name) == known.end())
        throw CLI::ValidationError("unknown command '" + name + "'." + did_you_mean(name, known));
      path += " " + name;
      chosen = chosen->get_subcommand(name);
    }
    // Not App::help, which describes the command that is running.
    std::cout << chosen->get_formatter()->make_help(chosen, path, CLI::AppFormatMode::Normal);
  });
}

void add_completion_command(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("completion", "Print a completion script for a shell");
  command->add_option("SHELL", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(
      "  source <(quire completion bash)                        this bash; or in ~/.bashrc\n"
      "  quire completion zsh > ~/.zfunc/_quire                 a folder of $fpath\n"
      "  quire completion fish > ~/.config/fish/completions/quire.fish");
  command->callback([&app, shell] { std::cout << completion_script(app, *shell); });
}

}  // namespace quire
