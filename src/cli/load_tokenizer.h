// The tokenizer that a command's --tokenizer or -m names.
#pragma once

#include <string>

#include "text/tokenizer/tokenizer.h"

namespace quire {

// Of a GGUF file, a tokenizer.json (.gz) or a folder with one; if `file` is empty, of a model.
Tokenizer load_tokenizer(const std::string& file, const std::string& model);

}  // namespace quire
