// quire: one binary, one file a command.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>

#include "base/error.h"
#include "cli/commands.h"

namespace {

// CLI11 reads integers as C does: 010 would be 8.
void refuse_octal(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    const std::string type = option->get_type_name();
    if (!type.starts_with("INT") && !type.starts_with("UINT")) continue;
    const auto check = [](const std::string& text) {
      const size_t first = text.find_first_not_of("+-");
      const bool leads = first != text.npos && text[first] == '0' && first + 1 < text.size();
      return leads ? text + ": expected a decimal number without leading zeros" : "";
    };
    option->check(check, "", "");
  }
  for (CLI::App* inner : command.get_subcommands([](CLI::App*) { return true; })) refuse_octal(*inner);
}

int run(int argc, char** argv) {
  CLI::App app{
      "Quire serves large language models from the machine you have: exact, at the limit, bounded, unbreakable.",
      "quire"};
  app.set_version_flag("--version", "quire " QUIRE_VERSION);
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  for (const auto add : quire::kCommands) add(app);
  refuse_octal(app);
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;  // a bad command line; help and version are no failure
  } catch (const std::exception& e) {
    std::fprintf(stderr, "quire: %s\n", e.what());
    return 1;
  }
}

// Output is buffered: a disk that was full shows at the end.
bool all_written() {
  std::cout.flush();
  return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
}

}  // namespace

int main(int argc, char** argv) {
  const int code = run(argc, argv);
  if (all_written() || code != 0) return code;
  std::fputs("quire: standard output: not all of it could be written\n", stderr);
  return 1;
}
