// Control vectors: directions that are added to the hidden states (representation engineering: arXiv 2310.01405), from the
// GGUF files of llama.cpp's cvector-generator and of repeng.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "model/config.h"

namespace quire {

// The sum of control vectors of a model.
class ControlVectors {
 public:
  // config: must outlive the object. Layers [first, last] of the model's files, counted from 0, are changed; last 0: to the
  // end. Throws Error: there is no such range of layers, or the model's hidden states are several streams (Gemma 3n).
  ControlVectors(const ModelConfig& config, int first, int last);

  // Adds `scale` times the file's directions: tensor direction.N [hidden], F32, is for layer N. Throws Error: not a control
  // vector, a layer that the model does not have, another size, or a number that is not finite.
  void add(const std::string& path, float scale);

  // For each layer of the config: what is added to its output [hidden]; empty: nothing.
  const std::vector<std::vector<float>>& directions() const { return directions_; }
  std::string identity() const;  // a hash of them
  size_t bytes() const;

 private:
  const ModelConfig& config_;
  std::vector<size_t> outputs_;  // for each layer of the files: the layer of the config whose output is its output
  size_t first_, last_;
  std::vector<std::vector<float>> directions_;
};

}  // namespace quire
