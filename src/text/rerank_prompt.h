// Prompts of rerankers that are decoders: one prompt with a query and a document, whose last token is classified.
#pragma once

#include <cstddef>
#include <string_view>

#include "text/tokenizer/tokenizer.h"

namespace quire {

// Qwen3-Reranker's, from its model card. {query} and {document} stand for the texts.
extern const std::string_view kQwen3RerankPrompt;

// The tokens of `pattern` with the texts in it, in which special tokens are plain text. If most_tokens > 0, the document
// is cut at its end until the prompt has at most that many. Throws Error (kInvalid) if it does not fit without a
// document.
TokenIds encode_rerank_prompt(const Tokenizer& tokenizer, std::string_view pattern, std::string_view query,
                              std::string_view document, size_t most_tokens);

}  // namespace quire
