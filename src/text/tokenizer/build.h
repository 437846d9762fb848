// Steps that both ways to build a tokenizer share.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/data.h"

namespace quire {

// The tokens that end an answer by their text, in the order in which the first that exists is taken for end of turn.
std::vector<std::string_view> end_of_turn_names();
std::vector<std::string_view> end_of_generation_names();

// by_text for every text in data.texts that is not empty; of equal texts the last id wins.
void index_texts(TokenizerData& data);

// data.special_texts from data.special.
void index_special_texts(TokenizerData& data);

// byte_tokens from the spellings <0x00> … <0xFF> in data.by_text.
void find_byte_tokens(const TokenizerData& data, std::array<TokenId, 256>& byte_tokens);

// data.bytes from data.texts by data.decoding.
void decode_texts(TokenizerData& data);

// Throws Error (kUnsupported) for a token of `where` that is too long to be looked for at every place of a text.
void check_token_length(std::string_view where, size_t id, std::string_view text);

// Sorts and deduplicates data.end_of_generation.
void finish_end_of_generation(TokenizerData& data);

}  // namespace quire
