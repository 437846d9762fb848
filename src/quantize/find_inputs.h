// How methods of quantization ask for what calibration has seen.
#pragma once

#include <functional>
#include <memory>

#include "model/tensors.h"
#include "quantize/input_statistics.h"

namespace quire {

// What the inputs of one of the model's matrices looked like; null: nothing is known.
using FindInputs = std::function<std::shared_ptr<const InputStatistics>(const Slot& slot)>;

}  // namespace quire
