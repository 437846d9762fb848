#include "text/tokenizer/unigram.h"

#include <algorithm>
#include <limits>

#include "base/text/utf8.h"

namespace quire {

void UnigramModel::encode(std::string_view text, TokenIds& out) const {
  struct Best {  // the best tokens for the text up to here
    double score = -std::numeric_limits<double>::infinity();
    uint32_t begin = 0;  // where its last token begins
    TokenId token = kNoToken;
    bool reached = false;
  };
  if (text.empty()) return;
  std::vector<Best> best(text.size() + 1);
  best[0] = {.score = 0, .reached = true};
  const auto offer = [&](size_t begin, size_t end, double score, TokenId token) {
    Best& target = best[end];
    if (!target.reached || score > target.score) target = {score, static_cast<uint32_t>(begin), token, true};
  };
  for (size_t at = 0; at < text.size();) {
    const size_t character = std::min(utf8_length(text[at]), text.size() - at);
    const double here = best[at].score;
    bool single = false;  // a token equals the character
    int32_t node = 0;
    for (size_t end = at; end < text.size();) {
      node = tokens.next(node, static_cast<unsigned char>(text[end++]));
      if (node == Trie::kNone) break;
      const TokenId token = tokens.value(node);
      if (token == Trie::kNone) continue;
      single = single || end - at == character;
      offer(at, end, here + scores[static_cast<size_t>(token)], token);
    }
    if (!single) offer(at, at + character, here + unknown_score, kNoToken);
    at += character;
  }
  const size_t begin_of_output = out.size();
  for (size_t end = text.size(); end > 0;) {
    if (best[end].token != kNoToken) {
      out.push_back(best[end].token);
      end = best[end].begin;
      continue;
    }
    size_t begin = best[end].begin;  // where the whole unknown run begins
    while (begin > 0 && best[begin].token == kNoToken) begin = best[begin].begin;
    const std::string_view run = text.substr(begin, end - begin);
    const bool bytes = byte_fallback && std::all_of(run.begin(), run.end(), [&](char c) {
                         return byte_tokens[static_cast<unsigned char>(c)] != kNoToken;
                       });
    if (bytes) {
      for (size_t i = run.size(); i-- > 0;) out.push_back(byte_tokens[static_cast<unsigned char>(run[i])]);
    } else if (unk) {
      out.push_back(*unk);
    }
    end = begin;
  }
  std::reverse(out.begin() + static_cast<ptrdiff_t>(begin_of_output), out.end());
}

}  // namespace quire
