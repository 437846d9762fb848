// The vocabulary of a GGUF file as the files of a Hugging Face directory.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "model/checkpoint.h"
#include "model/config.h"

namespace quire {

struct GgufTokenizerFiles {
  std::vector<std::pair<std::string, std::string>> texts;  // names and contents
  std::vector<std::string> warnings;
};

// tokenizer.json, tokenizer_config.json with the chat template, and generation_config.json. Of byte-level BPE with the
// pre-tokenizers gpt-2, smollm, llama-bpe and qwen2; others get no tokenizer, and a warning. What is written splits ordinary
// texts as the file's own vocabulary does (compare_tokenizers()).
GgufTokenizerFiles tokenizer_files(const Checkpoint& checkpoint, const ModelConfig& config);

}  // namespace quire
