// Mixtures of experts on the device: what ops/backend.h says of run_experts(). The rows of each expert are prepared and
// multiplied together; blocks for experts without rows end at once, and the host does not know which these are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "cuda/linear/inputs.h"
#include "cuda/linear/linear.h"
#include "cuda/ranks/rank_gather.h"
#include "cuda/route.h"
#include "cuda/stream.h"
#include "ops/experts.h"
#include "ops/operation_limits.h"

namespace quire::cuda {

// Memory for the results of gathered rows, and the addresses of layers' experts, which are uploaded when a layer runs first.
class ExpertMemory {
 public:
  // The device must outlive it. Throws Error (kResource).
  ExpertMemory(Device& device, const OperationLimits& limits);
  ~ExpertMemory();
  ExpertMemory(const ExpertMemory&) = delete;
  ExpertMemory& operator=(const ExpertMemory&) = delete;
  static size_t bytes(const OperationLimits& limits);
  // What InputBuffers must have room for.
  static InputBuffers::Need inputs(const OperationLimits& limits);

  // As Operations::run_experts(), for the rows of the last route(). args.experts: must stay where they are, and as they are,
  // as long as this object.
  void run(Stream& stream, InputBuffers& inputs, const RouteMemory& routes, const ExpertArgs& args, int rows,
           Activations mode);

 private:
  // The linears of all experts that read one kind of inputs.
  struct Inner {
    const PartMatrices* matrices = nullptr;     // [experts]
    const TransformView* transforms = nullptr;  // [experts]; nullptr: none has one
    bool rotated = false, by_matrix = false;    // whether a transform is
  };
  struct Layer {
    std::byte* memory = nullptr;
    Inner together;         // gate with up, if they have one format
    Inner first, up, down;  // first: the gate; without one, up
  };
  const Layer& layer_of(InputBuffers& inputs, const ExpertArgs& args, RankNumber number);

  Device& device_;
  std::byte* memory_ = nullptr;
  Rows inner_{}, out_{};  // gathered rows
  std::unordered_map<const ExpertLinears*, Layer> layers_;
};

}  // namespace quire::cuda
