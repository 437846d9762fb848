// The vocabulary and templates of a Hugging Face directory as metadata of a GGUF file.
#pragma once

#include <string>
#include <vector>

#include "format/gguf_writer.h"
#include "model/checkpoint.h"
#include "model/config.h"

namespace quire {

// Adds the tokenizer.* keys. A directory without tokenizer.json gets none but the kind "none". Throws Error
// (kUnsupported) for a tokenizer that llama.cpp does not have.
void add_vocabulary(const Checkpoint& from, const ModelConfig& config, GgufHeader& header,
                    std::vector<std::string>& warnings);

// Throws Error if the written vocabulary gives other tokens than the directory's for ordinary texts; warns where only
// unusual ones differ.
void check_vocabulary_of(const Checkpoint& from, const Checkpoint& written, std::vector<std::string>& warnings);

}  // namespace quire
