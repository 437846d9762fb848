#include "parsers/stage.h"

#include <algorithm>
#include <utility>

namespace quire {

Marks make_marks(const std::vector<std::string_view>& texts, const TokenSet& tokens) {
  Marks marks;
  for (const std::string_view text : texts) {
    if (!text.empty()) marks.push_back({text, tokens.contains(text)});
  }
  return marks;
}

void MarkedStage::plain_all(std::string_view run) {
  while (!run.empty()) run.remove_prefix(plain(run));
}

void MarkedStage::text(std::string_view run) {
  while (!run.empty()) {
    if (held_.empty()) {
      size_t plain_bytes = run.size();
      for (const Mark& mark : marks()) {
        if (!mark.token) plain_bytes = std::min(plain_bytes, run.find(mark.text.front()));
      }
      if (plain_bytes > 0) {
        run.remove_prefix(plain(run.substr(0, plain_bytes)));
        continue;  // the state may have changed
      }
    }
    held_ += run.front();
    run.remove_prefix(1);
    settle();
  }
}

// Consumes what is decided of held_.
void MarkedStage::settle() {
  while (!held_.empty()) {
    bool may_become = false;
    const Mark* found = nullptr;
    for (const Mark& mark : marks()) {
      if (mark.token) continue;
      if (held_.starts_with(mark.text)) {
        found = &mark;
        break;
      }
      may_become |= mark.text.starts_with(held_);
    }
    if (found) {
      held_.erase(0, found->text.size());
      mark_is_shown_ = true;
      hit(*found);
    } else if (may_become) {
      return;
    } else {
      const char first = held_.front();
      held_.erase(0, 1);
      plain_all({&first, 1});
    }
  }
}

void MarkedStage::token(const AnswerToken& token) {
  const std::string before = std::exchange(held_, {});
  plain_all(before);
  for (const Mark& mark : marks()) {
    if (!mark.token || mark.text != token.text) continue;
    mark_is_shown_ = token.shown;
    return hit(mark);
  }
  other(token);
}

void MarkedStage::end(bool complete) {
  const std::string before = std::exchange(held_, {});
  plain_all(before);
  finish(complete);
}

}  // namespace quire
