#include "quire/text.h"

#include <cmath>

#include "base/error.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {

TokenIds encode_text(const Engine& engine, std::string_view text, bool add_special) {
  return engine.tokenizer().encode(text, {.add_special = add_special});
}

std::string decode_tokens(const Engine& engine, std::span<const TokenId> ids, bool skip_special) {
  const Tokenizer& tokenizer = engine.tokenizer();
  for (const TokenId id : ids) {
    if (id < 0 || id >= tokenizer.vocab_size())
      throw invalid("token id {} is outside the vocabulary (0 to {})", id, tokenizer.vocab_size() - 1);
  }
  return tokenizer.decode(ids, {.skip_special = skip_special});
}

std::string token_bytes(const Engine& engine, TokenId id) {
  const std::string_view bytes = engine.tokenizer().token_bytes(id);
  return std::string(bytes.empty() ? engine.tokenizer().token_text(id) : bytes);
}

SpecialTokens special_tokens(const Engine& engine) {
  const Tokenizer& tokenizer = engine.tokenizer();
  return {.bos = tokenizer.bos(), .eos = tokenizer.eos(), .unk = tokenizer.unk(), .pad = tokenizer.pad()};
}

EncodedPair encode_pair(const Engine& engine, std::string_view query, std::string_view document, size_t most_tokens) {
  TokenPair pair = engine.encode_pair(query, document, most_tokens);
  return {std::move(pair.ids), pair.second};
}

double score_of(std::span<const float> results, Score score) {
  switch (score) {
    case Score::kSigmoid:
      return 1 / (1 + std::exp(-double{results[0]}));
    case Score::kYesNo:
      return 1 / (1 + std::exp(double{results[1]} - double{results[0]}));
    case Score::kRaw:
      break;
  }
  return results[0];
}

}  // namespace quire
