// A model's configuration as metadata of a GGUF file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "format/gguf_writer.h"
#include "model/config.h"

namespace quire {

// Adds the keys under "ARCHITECTURE." by which llama.cpp describes such a model. What an architecture leaves no key for is
// not written: difference_between() tells whether that matters.
void add_settings(const ModelConfig& config, std::string_view architecture, GgufHeader& header);

// Divisors or factors of rope frequencies, which GGUF files keep as tensors.
struct RopeTensor {
  std::string name;
  std::vector<float> values;
};
std::vector<RopeTensor> rope_tensors(const ModelConfig& config);

// The first thing that the model computes otherwise than `wanted`, "" if there is none. wanted: of a Hugging Face
// directory; written: of the GGUF file made of it. Norms of 1 + w and the order of rotated pairs may differ: writing
// changes the tensors.
std::string difference_between(const ModelConfig& wanted, const ModelConfig& written);

// What llama.cpp does otherwise with such a file than the model's configuration says, and Quire: "ignores the sliding
// window of 4096 tokens".
std::vector<std::string> llama_cpp_differences(const ModelConfig& config, std::string_view architecture);

}  // namespace quire
