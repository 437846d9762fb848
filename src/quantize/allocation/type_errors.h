// What types lose of a tensor's weights, from a sample of its rows.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/team.h"
#include "base/tensor_type.h"
#include "model/convert/tensor_plan.h"

namespace quire {

// Types that llama.cpp reads and that are worth choosing between. Those below 3.1 bits a weight that are of no use without
// importance only with it.
std::vector<TensorType> types_to_allocate(bool has_importance);

// The sum of the squared errors of a tensor in each of the types, each square times the importance of its column, from
// evenly spread rows: at least 8 and about 64 Ki weights. Infinite for a type that cannot hold the weights or whose blocks
// do not fit the rows; 0 for the type that the tensor has already. importance: [matrices, cols] or empty: all count alike.
// Throws Error if a weight is damaged or not finite. file: names the checkpoint in messages.
std::vector<double> sampled_errors(const PlannedTensor& tensor, std::span<const TensorType> types,
                                   std::span<const float> importance, const std::string& file, Team& team);

}  // namespace quire
