#include "text/tokenizer/pair.h"

#include <algorithm>

#include "base/error.h"
#include "text/tokenizer/data.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {

PairLengths cut_pair(size_t first, size_t second, size_t most) {
  // Not first + second > most, which could overflow.
  if (first <= most && second <= most - first) return {first, second};
  const size_t shorter = std::min({first, second, most / 2}), longer = most - shorter;
  return first <= second ? PairLengths{shorter, longer} : PairLengths{longer, shorter};
}

TokenPair Tokenizer::encode_pair(std::string_view a, std::string_view b, size_t most_tokens, bool parse_special) const {
  const PairTemplate& pair = data_->pair;
  if (pair.pieces.empty()) {
    throw unsupported("{}: this model has no template for a pair of texts: {}", data_->name, pair.missing);
  }
  const size_t around = pair.tokens();
  if (most_tokens > 0 && most_tokens < around) {
    throw invalid("a pair of at most {} tokens: the {} tokens around the texts do not fit", most_tokens, around);
  }
  const EncodeOptions options{.parse_special = parse_special};
  const TokenIds first = encode(a, options), second = encode(b, options);
  PairLengths keep{first.size(), second.size()};
  if (most_tokens > 0) keep = cut_pair(first.size(), second.size(), most_tokens - around);
  TokenPair result;
  result.ids.reserve(keep.first + keep.second + around);
  const auto append = [&](const TokenIds& ids, size_t count) {
    result.ids.insert(result.ids.end(), ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count));
  };
  for (size_t i = 0; i < pair.pieces.size(); ++i) {
    if (i == pair.second) result.second = result.ids.size();
    switch (pair.pieces[i].kind) {
      case PairTemplate::Kind::kToken:
        result.ids.push_back(pair.pieces[i].token);
        break;
      case PairTemplate::Kind::kFirst:
        append(first, keep.first);
        break;
      case PairTemplate::Kind::kSecond:
        append(second, keep.second);
        break;
    }
  }
  if (pair.second == pair.pieces.size()) result.second = result.ids.size();
  return result;
}

}  // namespace quire
