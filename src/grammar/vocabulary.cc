#include "grammar/vocabulary.h"

#include <algorithm>

#include "base/text/utf8.h"

namespace quire::grammar {
namespace {

// How many characters a plain token has; 0 if it is not plain.
size_t plain_characters(std::string_view bytes) {
  if (!is_utf8(bytes)) return 0;
  size_t characters = 0;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || c == '"' || c == '\\') return 0;
    if ((byte & 0xC0) != 0x80) ++characters;
  }
  return characters;
}

// ids: sorted by their bytes, which are distinct and not empty.
Trie make_trie(const std::vector<std::string>& bytes, std::span<const TokenId> ids) {
  Trie trie;
  std::vector<uint32_t> path;  // the nodes above the next one
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) trie[path.back()].end = static_cast<uint32_t>(trie.size());
  };
  for (const TokenId id : ids) {
    const std::string& text = bytes[static_cast<size_t>(id)];
    size_t same = 0;
    while (same < path.size() && same < text.size() && trie[path[same]].byte == static_cast<uint8_t>(text[same]))
      ++same;
    close(same);
    for (; same < text.size(); ++same) {
      path.push_back(static_cast<uint32_t>(trie.size()));
      trie.push_back({kNoToken, 0, static_cast<uint16_t>(same + 1), static_cast<uint8_t>(text[same])});
    }
    trie.back().token = id;
  }
  close(0);
  return trie;
}

}  // namespace

std::shared_ptr<const Vocabulary> Vocabulary::build(std::span<const std::string_view> bytes,
                                                    std::span<const SpecialToken> special,
                                                    std::span<const TokenId> end) {
  constexpr size_t kLongest = 4096;  // longer tokens are never allowed: TrieNode::depth
  auto made = std::make_shared<Vocabulary>();
  made->bytes_.assign(bytes.begin(), bytes.end());
  made->special_.assign(special.begin(), special.end());
  made->end_.assign(end.begin(), end.end());
  made->twins_.assign(bytes.size(), kNoToken);
  made->special_ids_.assign(bytes.size(), false);
  const auto take_out = [&](TokenId id) {
    made->bytes_.at(static_cast<size_t>(id)).clear();
    made->special_ids_[static_cast<size_t>(id)] = true;
  };
  for (const SpecialToken& token : special) {
    if (!token.text) take_out(token.id);
  }
  for (const TokenId id : end) take_out(id);

  std::vector<TokenId> ids;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (!made->bytes_[i].empty() && made->bytes_[i].size() <= kLongest) ids.push_back(static_cast<TokenId>(i));
  }
  const auto text = [&](TokenId id) -> const std::string& { return made->bytes_[static_cast<size_t>(id)]; };
  std::ranges::sort(ids, [&](TokenId a, TokenId b) { return text(a) != text(b) ? text(a) < text(b) : a < b; });
  std::vector<TokenId> distinct;
  for (const TokenId id : ids) {
    if (!distinct.empty() && text(distinct.back()) == text(id)) {
      TokenId last = distinct.back();
      while (made->twin(last) != kNoToken) last = made->twin(last);
      made->twins_[static_cast<size_t>(last)] = id;
    } else {
      distinct.push_back(id);
    }
  }
  made->trie_ = make_trie(made->bytes_, distinct);

  std::vector<size_t> plain;
  size_t most = 0;
  for (const TokenId id : distinct) {
    plain.push_back(plain_characters(text(id)));
    most = std::max(most, plain.back());
  }
  // Each slice costs a trie. Shorter slices would save little: their walk ends after a few characters anyway.
  for (const size_t limit : {size_t{4}, size_t{8}, size_t{16}, most}) {
    if (limit > most || most == 0 ||
        (limit == most && !made->slices_.empty() && made->slices_.back().max_characters == most))
      continue;
    Slice slice{.max_characters = limit, .mask = std::vector<uint32_t>(made->mask_words()), .others = {}};
    std::vector<TokenId> others;
    for (size_t i = 0; i < distinct.size(); ++i) {
      if (plain[i] == 0 || plain[i] > limit) {
        others.push_back(distinct[i]);
      } else {
        for (TokenId id = distinct[i]; id != kNoToken; id = made->twin(id))
          slice.mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
      }
    }
    slice.others = make_trie(made->bytes_, others);
    made->slices_.push_back(std::move(slice));
  }
  return made;
}

std::shared_ptr<const Vocabulary> Vocabulary::of_bytes() {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  texts.emplace_back();
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const TokenId end[] = {256};
  return build(views, {}, end);
}

std::optional<TokenId> Vocabulary::find_special(std::string_view spelling) const {
  const auto found = std::ranges::find(special_, spelling, &SpecialToken::spelling);
  return found == special_.end() ? std::nullopt : std::optional(found->id);
}

}  // namespace quire::grammar
