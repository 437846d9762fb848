// Medusa (arXiv 2401.10774): heads that each predict one of the next tokens from the last hidden state of the target.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "base/memory.h"
#include "base/team.h"
#include "model/config.h"
#include "model/weights.h"
#include "ops/backend.h"

namespace quire {

// Head k = 0, 1, ... predicts token t + 2 + k from the feature f of position t, which is the target's hidden state after its
// output norm (the target's own logits predict token t + 1):
//
//   logits = output matrix * (f + silu(weight * f + bias))
struct MedusaHeads {
  std::vector<Linear> heads;  // [hidden, hidden]
  BackendMemory memory;
};
// path: a safetensors file with heads.K.weight and heads.K.bias, or a folder with one. Throws Error naming file and
// tensor.
MedusaHeads read_medusa(const std::filesystem::path& path, const ModelConfig& target, Backend& backend, Team& team);

// What they take once read: matrices as packed, vectors in float32.
struct MedusaTotals {
  int heads = 0;
  uint64_t bytes = 0;
};
// Throws what read_medusa would throw because of names, shapes and types, without reading the numbers.
MedusaTotals check_medusa(const std::filesystem::path& path, const ModelConfig& target);

class Medusa {
 public:
  // max_rows: features of a call. The target and the backend, which has the heads, must outlive it. Those of several ranks
  // share the heads.
  Medusa(std::shared_ptr<const MedusaHeads> heads, const ModelConfig& target, Backend& backend, Activations activations,
         int max_rows);

  int heads() const { return static_cast<int>(heads_->heads.size()); }
  // The logits [rows][heads][output.weight.rows] of the first `heads` heads for the features in the given rows of
  // `features` [.., hidden], all in one pass over the output matrix. output: the target's, or some of its rows. They are
  // valid until the next call.
  std::span<float> forward(const Rows& features, std::span<const int32_t> rows, int heads, const Linear& output);

  // What the constructor allocates, besides what the backend allocates for limits().
  static size_t memory_bytes(int heads, const ModelConfig& target, int max_rows);
  static OperationLimits limits(int heads, const ModelConfig& target, int max_rows);

 private:
  std::shared_ptr<const MedusaHeads> heads_;
  const ModelConfig& target_;
  Backend& backend_;
  std::unique_ptr<Operations> ops_;
  int max_rows_;
  Rows features_;         // [rows]
  Rows hidden_, logits_;  // [rows * heads]
  BackendMemory memory_;
  HostCopy host_logits_;
};

}  // namespace quire
