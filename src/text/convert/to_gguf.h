// The vocabulary of a tokenizer.json as llama.cpp would read it from a GGUF file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "json/field.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {

// As GgufVocabulary, which only refers to its texts.
struct GgufVocabularyData {
  std::string model, pre;
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;
  std::vector<std::string> merges;
  std::string charsmap;
  std::optional<TokenId> bos, eos, unk, pad, eot, sep;
  std::optional<bool> add_bos, add_eos, add_sep, add_space_prefix, remove_extra_whitespaces;
  std::optional<bool> lowercase, strip_accents;
  std::vector<std::string> warnings;  // what a GGUF file cannot say
};

// What config.json and generation_config.json know of tokens.
struct ModelTokens {
  int vocab;  // rows of the embedding; the vocabulary is filled up to it
  TokenId bos;
  TokenIds eos;
};

// json: the text that `tokenizer` was read from. Throws Error (kUnsupported) for a pre-tokenizer or
// a normalizer that llama.cpp does not have.
GgufVocabularyData gguf_vocabulary(const Tokenizer& tokenizer, const JsonField& json, const ModelTokens& model);

// The first text of each kind that two tokenizers split otherwise; "" if there is none. Ordinary: what people write in
// many languages, and code. Unusual: scripts and characters where llama.cpp's pre-tokenizers differ from their models'.
struct TokenizerDifference {
  std::string ordinary, unusual;
};
TokenizerDifference compare_tokenizers(const Tokenizer& a, const Tokenizer& b);

}  // namespace quire
