// Steps shared by from_hf.cc and from_gguf.cc.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/data.h"

namespace quire {

// The texts of tokens that end an answer. The first end-of-turn name that exists in the vocabulary is the end of turn.
std::vector<std::string_view> end_of_turn_names();
std::vector<std::string_view> end_of_generation_names();

// A token of FimTokens and its names in the vocabularies of families.
struct FimNames {
  std::optional<TokenId> FimTokens::*token;
  std::vector<std::string_view> names;
  size_t control;  // how many of them llama.cpp knows; it makes them control tokens, whatever the GGUF file says
  bool ends;       // in llama.cpp the token ends every answer
};
const std::vector<FimNames>& fim_names();

// Finds the tokens of data.fim that are absent by their names.
void find_fim_tokens(TokenizerData& data);

// Fills data.by_text from the non-empty data.texts; of equal texts the last id wins.
void index_texts(TokenizerData& data);

// Fills data.special_texts from data.special.
void index_special_texts(TokenizerData& data);

// Fills byte_tokens from the spellings <0x00> … <0xFF> in data.by_text.
void find_byte_tokens(const TokenizerData& data, std::array<TokenId, 256>& byte_tokens);

// Fills data.bytes from data.texts with data.decoding.
void decode_texts(TokenizerData& data);

// Throws Error (kUnsupported) for a token too long to be matched at every position of a text.
void check_token_length(std::string_view where, size_t id, std::string_view text);

// Sorts and deduplicates data.end_of_generation.
void finish_end_of_generation(TokenizerData& data);

}  // namespace quire
