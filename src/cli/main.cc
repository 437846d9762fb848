// quire: one binary, one file a command.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <iostream>

#include "base/error.h"
#include "cli/commands.h"

namespace {

int run(int argc, char** argv) {
  CLI::App app{
      "Quire serves large language models from the machine you have: exact, at the limit, bounded, unbreakable.",
      "quire"};
  app.set_version_flag("--version", "quire " QUIRE_VERSION);
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  for (const auto add : quire::kCommands) add(app);
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
