// The vocabulary in a GGUF file.
#pragma once

#include "format/gguf.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {

// Reads the tokenizer.ggml.* keys; the views point into the file's mapping. Throws Error if a key is missing or has the
// wrong type.
GgufVocabulary read_gguf_vocabulary(const Gguf& file);

// The tokenizer of a GGUF file.
Tokenizer gguf_tokenizer(const Gguf& file);

}  // namespace quire
