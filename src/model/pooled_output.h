// How a checkpoint turns the final hidden states of a prompt into an embedding or scores.
#pragma once

#include <string>

#include "model/checkpoint.h"
#include "model/config.h"

namespace quire {

// Reads what the files say in addition to the family: the modules of sentence-transformers, GGUF's pooling_type and classifier, the
// number of classes. Throws Error: a module or a kind of pooling that Quire does not have.
void read_pooled_output(const Checkpoint& checkpoint, ModelConfig& config);

// Decoders are also published without a head (Qwen3Model) and with a classifier (Qwen3ForSequenceClassification): the
// name of the decoder itself, or `name`.
std::string decoder_of(const std::string& name);

// Whether config.json names a class for sequence classification, and the number of its classes.
bool is_classifier(const HfConfig& files);
int read_labels(const HfConfig& files);

}  // namespace quire
