#include "engine/ranks/device_ranks.h"

#include <fmt/format.h>

#include <string_view>

#include "base/error.h"

namespace quire {

void check_device_ranks(const ModelFacts& facts, const EngineOptions& o) {
  const auto refuse = [&](std::string_view what) {
    throw unsupported("--tensor-parallel-size {} with --device {} cannot be combined with {}", o.tensor_parallel_size,
                      o.device, what);
  };
  const auto layers = static_cast<int>(facts.config.layers.size());
  if (o.gpu_layers > 0 && o.gpu_layers < layers)
    refuse(fmt::format("--gpu-layers {}, which is less than the model's {} layers; leave one of them out", o.gpu_layers,
                       layers));
  if (o.cpu_moe_layers != 0) refuse("--cpu-moe or --n-cpu-moe; leave one of them out");
  // The rows of these tokens are on several devices.
  if (facts.drafters.named.model && !o.draft_vocabulary.empty()) refuse("--draft-vocabulary; leave it out");
  if (o.executor_process) refuse("--executor-process; leave one of them out");
}

}  // namespace quire
