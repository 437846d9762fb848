// Importance matrices from what calibration saw.
#pragma once

#include "model/convert/convert.h"
#include "quantize/find_inputs.h"
#include "quantize/importance_matrix.h"

namespace quire {

// What is known of the inputs of matrix `item` of those that a tensor of the model's GGUF file stacks; nullptr: nothing.
std::shared_ptr<const InputStatistics> inputs_of(const PlannedTensor& tensor, size_t item, const FindInputs& inputs);

// Whether a tensor of the model's GGUF file is its output matrix, perhaps as the embedding.
bool is_output(const PlannedTensor& tensor, const ModelConfig& config);

// An entry for each tensor of the model's GGUF file whose matrices had inputs. with_output: also for the output matrix, if
// it had inputs in all rows.
ImportanceMatrix measured_importance(const FilePlan& file, const FindInputs& inputs, bool with_output);

// Adds the sums of another matrix of the same model. Throws Error if an entry of both has other sizes.
void add_importance(ImportanceMatrix& to, const ImportanceMatrix& other);

}  // namespace quire
