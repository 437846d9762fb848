#include "text/tokenizer/wordpiece.h"

#include "base/text/utf8.h"

namespace quire {
namespace {

bool has_more_characters(std::string_view word, size_t most) {
  if (word.size() <= most) return false;
  size_t characters = 0;
  for (size_t at = 0; at < word.size(); at += utf8_length(word[at])) ++characters;
  return characters > most;
}

}  // namespace

int32_t WordPieceModel::node_after(std::string_view mark) const {
  int32_t node = 0;
  for (size_t i = 0; i < mark.size() && node != Trie::kNone; ++i) {
    node = tokens.next(node, static_cast<unsigned char>(mark[i]));
  }
  return node;
}

void WordPieceModel::encode(std::string_view word, TokenIds& out) const {
  if (word.empty()) return;
  if (has_more_characters(word, longest_word)) return out.push_back(unk);
  const size_t begin_of_output = out.size();
  int32_t start = beginning;
  TokenId found = start == Trie::kNone ? Trie::kNone : tokens.value(start);  // the mark alone may be a token
  for (size_t at = 0; at < word.size();) {
    int32_t node = start;
    size_t found_end = at;
    for (size_t end = at; end < word.size() && node != Trie::kNone;) {
      node = tokens.next(node, static_cast<unsigned char>(word[end++]));
      if (node == Trie::kNone || tokens.value(node) == Trie::kNone) continue;
      found = tokens.value(node);
      found_end = end;
    }
    if (found == Trie::kNone) {
      out.resize(begin_of_output);
      return out.push_back(unk);
    }
    out.push_back(found);
    at = found_end;
    start = continuing;
    found = Trie::kNone;
  }
}

}  // namespace quire
