// The tokens that a text of the target's kind has most often: a drafter multiplies only their rows of the output matrix.
#pragma once

#include <filesystem>

#include "quire/types.h"

namespace quire {

// The first `count` ids of the tensor ids_by_frequency in a safetensors file, most frequent first. Throws Error: there are
// fewer, one is outside the vocabulary or comes twice.
TokenIds read_token_frequency(const std::filesystem::path& path, int vocab, int count);

}  // namespace quire
