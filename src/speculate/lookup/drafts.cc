#include "speculate/lookup/drafts.h"

#include <algorithm>
#include <cassert>

namespace quire {

void Drafts::clear() {
  tokens_.clear();
  starts_.clear();
}

void Drafts::start(int match) { starts_.push_back({tokens_.size(), match}); }

void Drafts::push(TokenId token) {
  assert(!starts_.empty());
  tokens_.push_back(token);
}

Drafts::Draft Drafts::operator[](size_t i) const {
  const size_t begin = starts_[i].token, end = i + 1 < starts_.size() ? starts_[i + 1].token : tokens_.size();
  return {starts_[i].match, std::span(tokens_).subspan(begin, end - begin)};
}

bool Drafts::has_first(TokenId token) const {
  return std::any_of(starts_.begin(), starts_.end(),
                     [&](const Start& start) { return start.token < tokens_.size() && tokens_[start.token] == token; });
}

}  // namespace quire
