// A model's vectors: which ones, where they come from, and where they go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "format/tensor_view.h"
#include "model/tensors.h"
#include "model/weights.h"

namespace quire {

struct VectorJob {
  Vector* values;
  const TensorView* view;
  Source source;
  int size;
  size_t begin;  // first element in the file, before source.row()
  Change change;
  int cols;  // kTranspose: of the file's matrix
  bool on_host;
};

class VectorList {
 public:
  void add(VectorJob job) { jobs_.push_back(std::move(job)); }
  uint64_t bytes() const;  // of all, in float32

  // Reads all. Those that several jobs fill are joined of several tensors, in their order. file: its name, for errors. host: for
  // those that are on the host; may be nullptr if there are none. Throws Error: a number is not finite.
  void read(const std::string& file, Backend& backend, Backend* host) const;

 private:
  std::vector<VectorJob> jobs_;
};

}  // namespace quire
