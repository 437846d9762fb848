#include "sampling/stop.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace quire {
namespace {

std::vector<size_t> borders(std::string_view text) {
  std::vector<size_t> border(text.size(), 0);
  size_t length = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    while (length > 0 && text[length] != text[i]) length = border[length - 1];
    if (text[length] == text[i]) ++length;
    border[i] = length;
  }
  return border;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop) : include_stop_(include_stop) {
  for (std::string& stop : stops) {
    assert(!stop.empty());
    std::vector<size_t> border = borders(stop);
    patterns_.push_back({std::move(stop), std::move(border), 0});
  }
}

StopStep StopMatcher::push(std::string_view delta) {
  if (which_) return {{}, which_};
  size_t end = held_.size();  // in held_ with delta behind
  held_ += delta;
  size_t partial = 0;  // the longest beginning of a stop string that ends the text
  for (const Pattern& pattern : patterns_) partial = std::max(partial, pattern.matched);
  for (const char byte : delta) {
    ++end;
    partial = 0;
    for (size_t i = 0; i < patterns_.size(); ++i) {
      Pattern& p = patterns_[i];
      while (p.matched > 0 && p.text[p.matched] != byte) p.matched = p.border[p.matched - 1];
      if (p.text[p.matched] == byte) ++p.matched;
      partial = std::max(partial, p.matched);
      const bool complete = p.matched == p.text.size();
      if (complete && (!which_ || p.text.size() > patterns_[*which_].text.size())) which_ = i;
    }
    if (!which_) continue;
    held_.resize(include_stop_ ? end : end - patterns_[*which_].text.size());
    return {std::exchange(held_, {}), which_};
  }
  if (include_stop_) return {std::exchange(held_, {}), {}};
  std::string text = held_.substr(0, held_.size() - partial);
  held_.erase(0, text.size());
  return {std::move(text), {}};
}

StopStep StopMatcher::finish() {
  for (Pattern& pattern : patterns_) pattern.matched = 0;
  return {std::exchange(held_, {}), which_};
}

}  // namespace quire
