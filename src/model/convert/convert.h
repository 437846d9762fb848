// Writes a Hugging Face directory as a GGUF file that llama.cpp and Quire read with the same results.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/team.h"
#include "model/checkpoint.h"

namespace quire {

struct ConvertOptions {
  std::optional<TensorType> type;  // the matrices': F32, F16, BF16 or Q8_0; std::nullopt: as in the checkpoint
  std::string name;                // general.name
  std::function<void(size_t written, size_t total)> progress = {};  // in tensors
};

struct Converted {
  TensorType type;  // that most matrix elements have
  size_t tensors = 0;
  std::vector<std::string> warnings;  // where llama.cpp will not do as the directory says
};

// The architectures (config.json) that can be written.
std::vector<std::string_view> convertible_architectures();

// Writes `to`, all at once: an error leaves an older file as it was. Before it writes weights it reads back the
// configuration, the tensors' shapes and the vocabulary as Quire reads a GGUF file, and refuses a file that would be
// another model. Memory: the largest tensor. Throws Error: an architecture or a setting that GGUF files cannot express,
// damaged weights, a full disk.
Converted convert_checkpoint(const Checkpoint& from, const std::filesystem::path& to, const ConvertOptions& options,
                             Team& team);

}  // namespace quire
