// The vocabulary in a GGUF file.
#pragma once

#include "format/gguf.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {

// The tokenizer.ggml.* keys. The views point into the file's mapping. Throws Error where a key is missing or has
// another type.
GgufVocabulary read_gguf_vocabulary(const Gguf& file);

// Its tokenizer.
Tokenizer gguf_tokenizer(const Gguf& file);

}  // namespace quire
