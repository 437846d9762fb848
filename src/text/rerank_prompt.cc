#include "text/rerank_prompt.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace quire {
namespace {

TokenIds encode_pair(const Tokenizer& tokenizer, std::string_view pattern, std::string_view query,
                     std::string_view document) {
  const std::array<std::pair<std::string_view, std::string_view>, 2> texts{
      {{"{query}", query}, {"{document}", document}}};
  std::string prompt;
  std::vector<size_t> plain;  // where a text spells a special token
  while (!pattern.empty()) {
    size_t next = pattern.size();
    std::string_view mark, text;
    for (const auto& [name, value] : texts) {
      if (const size_t at = pattern.find(name); at < next) next = at, mark = name, text = value;
    }
    prompt += pattern.substr(0, next);
    for (const size_t start : tokenizer.special_starts(text)) plain.push_back(prompt.size() + start);
    prompt += text;
    pattern.remove_prefix(next + mark.size());
  }
  return tokenizer.encode(prompt, {.parse_special = true, .plain = plain});
}

}  // namespace

const std::string_view kQwen3RerankPrompt =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a "
    "web search query, retrieve relevant passages that answer the query\n<Query>: {query}\n<Document>: "
    "{document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

TokenIds encode_rerank_prompt(const Tokenizer& tokenizer, std::string_view pattern, std::string_view query,
                              std::string_view document, size_t most_tokens) {
  TokenIds ids = encode_pair(tokenizer, pattern, query, document);
  std::string cut;
  while (most_tokens > 0 && ids.size() > most_tokens) {
    TokenIds text = tokenizer.encode(document, {.parse_special = false});
    const size_t excess = ids.size() - most_tokens;
    if (excess > text.size()) throw invalid("the query and the prompt around it take more than {} tokens", most_tokens);
    text.resize(text.size() - excess);
    std::string shorter = tokenizer.decode(text);
    if (shorter.size() >= document.size()) throw invalid("the document cannot be cut to {} tokens", most_tokens);
    cut = std::move(shorter);
    document = cut;
    ids = encode_pair(tokenizer, pattern, query, document);
  }
  return ids;
}

}  // namespace quire
