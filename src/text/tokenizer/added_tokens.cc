#include "text/tokenizer/added_tokens.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "base/error.h"
#include "base/text/unicode.h"
#include "base/text/utf8.h"

namespace quire {
namespace {

// The character that ends at `end`; `begin` receives its first byte.
char32_t character_before(std::string_view text, size_t end, size_t& begin) {
  begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  size_t at = begin;
  return utf8_next(text, at);
}

bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, Order order) : tokens_(std::move(tokens)), order_(order) {
  for (size_t i = tokens_.size(); i-- > 0;) {  // the first of equal tokens counts
    if (tokens_[i].content.size() > kLongestToken) {
      throw unsupported("the added token {} has {} bytes, at most {} are allowed", tokens_[i].id,
                        tokens_[i].content.size(), kLongestToken);
    }
    trie_.insert(tokens_[i].content, static_cast<int32_t>(i));
  }
}

bool AddedTokens::Specials::allow(size_t begin, size_t end) const {
  if (!parse || plain.empty()) return parse;
  const auto covered = std::ranges::lower_bound(plain, begin);
  return covered == plain.end() || *covered >= end;
}

void AddedTokens::split(std::string_view text, Specials specials, std::vector<Fragment>& fragments) const {
  if (text.empty()) return;
  if (trie_.empty()) {
    fragments.push_back({text});
  } else if (order_ == Order::kLeftmostLongest) {
    find_leftmost(text, specials, fragments);
  } else {
    find_longest(text, specials, fragments);
  }
}

void AddedTokens::find_leftmost(std::string_view text, Specials specials, std::vector<Fragment>& fragments) const {
  size_t done = 0;       // the text up to here is in fragments
  size_t space_end = 0;  // end of the white space that the last rstrip token includes
  for (size_t at = 0; at < text.size();) {
    int32_t node = 0, found = Trie::kNone;
    size_t found_end = at;
    for (size_t end = at; end < text.size();) {
      node = trie_.next(node, static_cast<unsigned char>(text[end++]));
      if (node == Trie::kNone) break;
      const int32_t token = trie_.value(node);
      if (token == Trie::kNone) continue;
      if (specials.parse && tokens_[static_cast<size_t>(token)].special && !specials.allow(at, end)) continue;
      found = token;
      found_end = end;
    }
    if (found == Trie::kNone) {
      ++at;
      continue;
    }
    size_t begin = at, end = found_end;
    at = found_end;
    const AddedToken& token = tokens_[static_cast<size_t>(found)];
    if (token.special && !specials.parse) continue;
    if (token.single_word) {
      size_t before = begin, after = end;
      if (begin > 0 && is_word(character_before(text, begin, before))) continue;
      if (end < text.size() && is_word(utf8_next(text, after))) continue;
    }
    if (token.lstrip) {
      for (size_t before = begin; begin > done && is_white_space(character_before(text, begin, before));)
        begin = before;
    }
    if (token.rstrip) {
      if (end < space_end) end = space_end;  // inside the white space of an earlier token
      for (size_t after = end; after < text.size() && is_white_space(utf8_next(text, after));) end = after;
      space_end = end;
    }
    if (token.lstrip && end <= done) continue;  // nothing is left of it
    begin = std::max(begin, done);
    if (begin > done) fragments.push_back({text.substr(done, begin - done)});
    fragments.push_back({text.substr(begin, std::max(end, begin) - begin), token.id});
    done = std::max(end, begin);
  }
  if (done < text.size()) fragments.push_back({text.substr(done)});
}

// Every position starts with the longest token that matches there. Longer tokens are placed first; a token whose end
// overlaps a placed token is replaced by the next shorter one at the same position.
void AddedTokens::find_longest(std::string_view text, Specials specials, std::vector<Fragment>& fragments) const {
  std::map<size_t, std::vector<Place>, std::greater<>> by_length;
  const auto longest_at = [&](size_t at, size_t limit) {  // takes at most `limit` bytes
    Place place{at, at, Trie::kNone};
    int32_t node = 0;
    for (size_t end = at; end < text.size() && end - at < limit;) {
      node = trie_.next(node, static_cast<unsigned char>(text[end++]));
      if (node == Trie::kNone) break;
      const int32_t token = trie_.value(node);
      if (token == Trie::kNone) continue;
      if (tokens_[static_cast<size_t>(token)].special && !specials.allow(at, end)) continue;
      place.end = end;
      place.token = token;
    }
    return place;
  };
  for (size_t at = 0; at < text.size(); ++at) {
    if (trie_.next(0, static_cast<unsigned char>(text[at])) == Trie::kNone) continue;
    const Place place = longest_at(at, text.size());
    if (place.token != Trie::kNone) by_length[place.end - at].push_back(place);
  }
  std::vector<bool> taken(by_length.empty() ? 0 : text.size());
  std::vector<Place> placed;
  for (auto it = by_length.begin(); it != by_length.end(); ++it) {
    std::sort(it->second.begin(), it->second.end(), [](const Place& a, const Place& b) {
      return a.token != b.token ? a.token < b.token : a.begin < b.begin;
    });
    for (const Place& place : it->second) {
      if (taken[place.begin]) continue;
      size_t free = place.begin;
      while (free < place.end && !taken[free]) ++free;
      if (free == place.end) {
        std::fill(taken.begin() + static_cast<std::ptrdiff_t>(place.begin),
                  taken.begin() + static_cast<std::ptrdiff_t>(place.end), true);
        placed.push_back(place);
      } else if (const Place shorter = longest_at(place.begin, free - place.begin); shorter.token != Trie::kNone) {
        by_length[shorter.end - shorter.begin].push_back(shorter);
      }
    }
  }
  std::sort(placed.begin(), placed.end(), [](const Place& a, const Place& b) { return a.begin < b.begin; });
  size_t done = 0;
  for (size_t i = 0; i < placed.size(); ++i) {
    const Place& place = placed[i];
    const AddedToken& token = tokens_[static_cast<size_t>(place.token)];
    size_t begin = place.begin;
    while (token.lstrip && begin > done && is_ascii_space(text[begin - 1])) --begin;
    if (begin > done) fragments.push_back({text.substr(done, begin - done)});
    done = place.end;
    const size_t limit = i + 1 < placed.size() ? placed[i + 1].begin : text.size();
    while (token.rstrip && done < limit && is_ascii_space(text[done])) ++done;
    fragments.push_back({text.substr(begin, done - begin), token.id});
  }
  if (done < text.size()) fragments.push_back({text.substr(done)});
}

}  // namespace quire
