// Small vocabularies as GGUF files have them.
#pragma once

#include <string>
#include <vector>

#include "tokenizer_samples.h"

namespace quire {

// Owns the strings that a GgufVocabulary points to.
struct Sample {
  std::vector<std::string> texts, merges;
  GgufVocabulary vocabulary;

  Tokenizer make() {
    vocabulary.tokens.assign(texts.begin(), texts.end());
    vocabulary.merges.assign(merges.begin(), merges.end());
    return Tokenizer::from_gguf(vocabulary, "sample.gguf");
  }
  TokenId add(const std::string& text, int32_t type, float score = 0) {
    texts.push_back(text);
    vocabulary.token_types.push_back(type);
    vocabulary.scores.push_back(score);
    return static_cast<TokenId>(texts.size() - 1);
  }
};

inline Sample byte_level() {
  Sample s;
  s.vocabulary.model = "gpt2";
  s.vocabulary.pre = "gpt-2";
  for (int b = 0; b < 256; ++b) s.add(bytes_to_alphabet(std::string(1, static_cast<char>(b))), 1);
  s.merges = {"a b"};
  s.add("ab", 1);
  return s;
}

inline Sample sentence_piece() {
  Sample s;
  s.vocabulary.model = "llama";
  s.add("<unk>", 2);
  s.add("<s>", 3);
  s.add("</s>", 3);
  for (int b = 0; b < 256; ++b) s.add(byte_token(static_cast<unsigned char>(b)), 6);
  s.add("▁", 1, -10);
  s.add("a", 1, -11);
  s.add("b", 1, -12);
  s.add("ab", 1, -2);
  s.add("▁a", 1, -1);
  return s;
}

// [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, then `tokens`: ▁ begins a word.
inline Sample word_piece(const std::vector<std::string>& tokens) {
  Sample s;
  s.vocabulary.model = "bert";
  for (const char* special : {"[PAD]", "[UNK]", "[CLS]", "[SEP]"}) s.add(special, 3);
  for (const std::string& token : tokens) s.add(token, 1);
  s.vocabulary.pad = 0;
  s.vocabulary.unk = 1;
  s.vocabulary.bos = 2;
  s.vocabulary.sep = s.vocabulary.eos = 3;
  return s;
}

// XLM-RoBERTa: <s> 0, <pad> 1, </s> 2, <unk> 3, then ▁, a, ▁a.
inline Sample xlm_roberta() {
  Sample s;
  s.vocabulary.model = "t5";
  for (const char* special : {"<s>", "<pad>", "</s>"}) s.add(special, 3);
  s.add("<unk>", 2);
  s.add("▁", 1, -2);
  s.add("a", 1, -3);
  s.add("▁a", 1, -1);
  s.vocabulary.bos = 0;
  s.vocabulary.pad = 1;
  s.vocabulary.eos = s.vocabulary.sep = 2;
  s.vocabulary.unk = 3;
  s.vocabulary.add_bos = s.vocabulary.add_eos = s.vocabulary.add_sep = true;
  s.vocabulary.add_space_prefix = s.vocabulary.remove_extra_whitespaces = true;
  return s;
}

}  // namespace quire
