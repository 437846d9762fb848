// Fill in the middle: prompts that ask a model for the text between two others, in the tokens of its family.
//
//   TokenIds prompt = encode_infill(tokenizer, {.prefix = "def add(a, b):\n    return ", .suffix = "\n"});
//
// Qwen, StarCoder, Granite, CodeLlama, DeepSeek, CodeGemma:  PREFIX text SUFFIX text MIDDLE
// Codestral:                                                [SUFFIX] text [PREFIX] text
#pragma once

#include <string>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace quire {

struct InfillFile {
  std::string name, text;
};

// Plain text: special tokens that are spelled out stay text.
struct InfillInput {
  std::string prefix, suffix;          // before and after the gap
  std::vector<InfillFile> files = {};  // other files, which come before all that
  bool add_bos = true;                 // if the model expects BOS around a text
};

// Whether the vocabulary has the tokens for it.
bool can_infill(const Tokenizer& tokenizer);

// Throws Error (kUnsupported) if the vocabulary has no tokens for it.
TokenIds encode_infill(const Tokenizer& tokenizer, const InfillInput& input);

// Tokens that end such an answer, besides those that end every answer.
TokenIds infill_ends(const Tokenizer& tokenizer);

}  // namespace quire
