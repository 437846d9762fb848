#include "cli/program.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/static_program.h"
#include "base/text/nearest.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/flags/engine_options.h"
#include "cli/hub/model_names.h"

namespace quire {
namespace {

void refuse_octal(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    if (option->get_type_name().find("INT") != std::string::npos) option->check(check_decimal, "", "");
  }
  for (CLI::App* inner : command.get_subcommands([](CLI::App*) { return true; })) refuse_octal(*inner);
}

// Short names of flags, vLLM's and llama.cpp's; CLI11 takes a dash and two letters for two flags.
void spell_out_short_names(int argc, char** argv) {
  static char tensor[] = "--tensor-parallel-size", pipeline[] = "--pipeline-parallel-size", gpu[] = "--gpu-layers",
              cpu_moe[] = "--cpu-moe", n_cpu_moe[] = "--n-cpu-moe";
  const std::pair<std::string_view, char*> names[] = {
      {"-tp", tensor}, {"-pp", pipeline}, {"-ngl", gpu}, {"-cmoe", cpu_moe}, {"-ncmoe", n_cpu_moe}};
  for (int i = 1; i < argc; ++i) {
    for (const auto& [name, flag] : names)
      if (argv[i] == name) argv[i] = flag;
  }
}

// Warnings of libraries go to standard error, like our own messages. `serve` sets up its own log.
void log_to_stderr() {
  auto logger = spdlog::stderr_logger_mt("quire");
  logger->set_pattern("quire: %v");
  logger->set_level(spdlog::level::warn);
  spdlog::set_default_logger(std::move(logger));
}

int wrong_command_line(const std::string& message) {
  std::fprintf(stderr, "quire: %s\n", message.c_str());
  return 2;
}

int run_command_line(int argc, char** argv) {
  log_to_stderr();
  CLI::App app{"Quire runs large language models on this machine: in the terminal, or as an OpenAI-compatible server.",
               "quire"};
  app.formatter(make_help_formatter());
  app.get_formatter()->label("SUBCOMMAND", "COMMAND");
  app.set_help_flag("-h,--help", "print this help");
  app.set_version_flag("--version", "quire " QUIRE_VERSION, "print the version");
  app.set_config("--config")->group("");  // shown by `quire serve --help`
  app.config_formatter(make_config_reader("serve"));
  app.require_subcommand(1);
  app.allow_config_extras(CLI::config_extras_mode::error);  // a misspelled setting is not ignored
  for (const auto add : kCommands) add(app);
  download_named_models(app);
  for (CLI::App* command : app.get_subcommands({})) command->group("Commands");
  app.footer(
      "First steps:\n"
      "  quire run -m smollm2 -p \"What is the capital of France?\"\n"
      "  quire run -m smollm2          a chat\n"
      "  quire serve -m model.gguf     the OpenAI API at http://127.0.0.1:8080/v1\n"
      "  quire run -m hf:ORG/REPO      downloads a model of the Hugging Face hub\n"
      "`quire help COMMAND` describes a command.");
  refuse_octal(app);
  if (argc > 1 && argv[1][0] != '-') {
    const std::string command = argv[1];
    const auto names = command_names(app);
    if (std::ranges::find(names, command) == names.end()) {
      const std::string hint = did_you_mean(command, names);
      return wrong_command_line("unknown command '" + command + "'." +
                                (hint.empty() ? " `quire help` lists the commands" : hint));
    }
  }
  try {
    spell_out_short_names(argc, argv);
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // help or version
    return wrong_command_line(describe(e, app));
  } catch (const OptionError& e) {
    return wrong_command_line(e.what());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "quire: %s\n", e.what());
    return 1;
  }
}

// Output is buffered, so a full disk shows only now.
bool all_written() {
  std::cout.flush();
  return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
}

}  // namespace

int run_program(int argc, char** argv) {
  adapt_static_program();
  const int code = run_command_line(argc, argv);
  if (all_written() || code != 0) return code;
  std::fputs("quire: standard output could not be written completely\n", stderr);
  return 1;
}

}  // namespace quire
