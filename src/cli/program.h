// quire: one binary, a source file for each command.
#pragma once

namespace quire {

// All of the program, but for what a process may do before: its main(), or that of the Python package. Returns the exit code:
// 0, 1 (the run failed) or 2 (the command line is wrong). Changes argv.
int run_program(int argc, char** argv);

}  // namespace quire
