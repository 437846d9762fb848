// Texts and tokens beyond Engine::encode() and Engine::decode(), and pairs of texts with their scores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "quire/engine.h"

namespace quire {

// The functions with an engine throw Error (kUnsupported) if its model has no vocabulary.

// add_special: with the special tokens that the model expects around a text. Those that `text` spells become tokens.
TokenIds encode_text(const Engine& engine, std::string_view text, bool add_special = true);
// The ids must be in the vocabulary (Error). skip_special: without special tokens.
std::string decode_tokens(const Engine& engine, std::span<const TokenId> ids, bool skip_special = false);
// The bytes of a token inside a text (" world"), which may be part of a character; of a special token its name.
std::string token_bytes(const Engine& engine, TokenId id);

// Tokens with a part in every text, as far as the vocabulary has them: begin, end, unknown, padding.
struct SpecialTokens {
  std::optional<TokenId> bos, eos, unk, pad;
};
SpecialTokens special_tokens(const Engine& engine);

// Request::prompt and Request::second_text.
struct EncodedPair {
  TokenIds prompt;
  size_t second_text = SIZE_MAX;
};
// The prompt with which a classifier scores how well the document fits the query. If most_tokens > 0, the longer text is
// cut until the prompt has at most so many. Throws Error if the vocabulary has no template for two texts.
EncodedPair encode_pair(const Engine& engine, std::string_view query, std::string_view document,
                        size_t most_tokens = 0);

// The score of a pair, from a classifier's results: Output::embedding and ModelInfo::score. results: not empty, of two
// numbers for kYesNo.
double score_of(std::span<const float> results, Score score);

}  // namespace quire
