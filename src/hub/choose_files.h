// Which files of a repository make up the model that was asked for.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hub/repository.h"

namespace quire {

struct FileChoice {
  std::vector<RepoFile> files;      // in the order in which to download them: weights last
  std::string main = {};            // the file to open; empty: the folder
  std::string quant = {};           // "Q4_K_M", "safetensors"; empty: the file's name does not say
  std::string reason = {};          // "the only GGUF file", "it is the usual choice"
  std::vector<std::string> others;  // what else could be asked for: quantizations, or files
  uint64_t bytes() const;
};

// choice: the path of a file, a quantization in any case ("q4_k_m"), "safetensors", or empty. Then a GGUF repository
// gives Q4_K_M if it fits, or else the largest file that does; another repository gives its safetensors. The parts of a
// split file count as one. memory: bytes available; a file of F bytes needs about 1.3 F. A file whose size is not known
// counts as fitting. Throws Error (kNotFound, kInvalid, kResource) that names what there is.
FileChoice choose_files(std::span<const RepoFile> files, const std::string& choice, uint64_t memory,
                        const std::string& name);

// The quantization that a file's name ends in, in upper case: "model.q4_k_m.gguf" and "UD-Q4_K_XL/x-00001-of-00002.gguf"
// have Q4_K_M and UD-Q4_K_XL. Empty: none.
std::string quantization_of(std::string_view path);

}  // namespace quire
