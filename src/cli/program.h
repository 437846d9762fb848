// quire: one binary, a source file for each command.
#pragma once

namespace quire {

// Runs the command that argv names; main() and the Python package do nothing else. Returns the exit code: 0, 1 (the run failed)
// or 2 (the command line is wrong). Changes argv.
int run_program(int argc, char** argv);

}  // namespace quire
