#include "engine/answer/thought_watch.h"

#include <algorithm>

#include "text/token_frames.h"

namespace quire {

ThoughtWatch::ThoughtWatch(const ThoughtBudget& budget)
    : budget_(&budget), inside_(budget.inside), closing_(budget.closing.size()) {
  if (inside_ && budget.tokens == 0) closing_ = 0;
}

void ThoughtWatch::add(std::string_view text) {
  const size_t last = budget_->closing.size();
  const bool closes = closing_ < last && !skipped_;
  skipped_ = false;
  if (closes) ++closing_;
  tail_ += text;
  std::ranges::replace(tail_, kShownFrame, kSpecialFrame);
  const std::string& mark = inside_ ? budget_->close : budget_->open;
  if (const size_t at = tail_.find(mark); at != std::string::npos) {
    inside_ = !inside_;
    tail_.erase(0, at + mark.size());
  } else if (inside_ && !closes) {
    ++spent_;
  }
  const size_t keep = std::max(budget_->open.size(), budget_->close.size());
  if (tail_.size() > keep) tail_.erase(0, tail_.size() - keep);
  // Not inside a character.
  if (inside_ && closing_ == last && spent_ >= budget_->tokens && !text.empty()) closing_ = 0;
  if (!inside_ && closing_ == 0) closing_ = last;  // the model closed it in time
}

std::optional<TokenId> ThoughtWatch::forced() const {
  if (closing_ == budget_->closing.size()) return std::nullopt;
  return budget_->closing[closing_];
}

void ThoughtWatch::skip() {
  if (closing_ == 0) {
    skipped_ = true;
  } else {
    closing_ = budget_->closing.size();
  }
}

}  // namespace quire
