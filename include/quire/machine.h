// What hosts that choose EngineOptions want to know of the machine.
#pragma once

#include <cstddef>
#include <filesystem>

namespace quire {

// Bytes that this process may still allocate: of the machine, or of its control group if that has less.
size_t available_memory();

// Where the program keeps its measurements of loops (EngineOptions::tuning_file): in the user's cache folder.
std::filesystem::path default_tuning_file();

}  // namespace quire
