// The tensors of heads that draft with a target's hidden states: safetensors files that have no configuration of their own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/memory.h"
#include "base/team.h"
#include "format/safetensors.h"
#include "model/packing/pack_matrices.h"
#include "model/weights.h"

namespace quire {

// Lists tensors first, then reads them all. Throws Error that names file and tensor: missing, of the wrong shape or type,
// with a number that is not finite, or of no use to the head (ignoring it would silently run another head).
class HeadTensors {
 public:
  // A safetensors file, or a folder with one.
  explicit HeadTensors(const std::filesystem::path& path);

  const std::string& file() const { return file_.file(); }
  // Changes with every name and number of the file.
  std::string identity() const;
  std::span<const TensorView> tensors() const { return file_.tensors(); }
  // The number of rows of a matrix whose file decides about it.
  int rows(const std::string& name, int cols);

  // `to` must not move before read().
  void matrix(const std::string& name, int rows, int cols, Linear& to);
  void vector(const std::string& name, int size, Vector& to);

  // What the listed tensors take once read: matrices as packed, vectors in float32. Throws Error if the file has others.
  uint64_t checked_bytes() const;
  // Packs the matrices into the memory that it returns. The backend must outlive that.
  BackendMemory read(Backend& backend, Team& team);

 private:
  struct VectorJob {
    const TensorView* view;
    Vector* to;
  };
  void check_all_used() const;
  const TensorView& tensor(const std::string& name);
  const TensorView& tensor(const std::string& name, const std::vector<uint64_t>& shape);

  Safetensors file_;
  std::set<std::string> used_;
  std::vector<MatrixJob> matrices_;
  std::vector<VectorJob> vectors_;
  size_t bytes_ = 0;
};

}  // namespace quire
