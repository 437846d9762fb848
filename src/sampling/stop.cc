#include "sampling/stop.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

namespace quire {
namespace {

std::vector<uint16_t> borders(std::string_view text) {
  std::vector<uint16_t> border(text.size(), 0);
  size_t length = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    while (length > 0 && text[length] != text[i]) length = border[length - 1];
    if (text[length] == text[i]) ++length;
    border[i] = static_cast<uint16_t>(length);
  }
  return border;
}

}  // namespace

std::vector<StopString> prepare_stops(std::vector<std::string> stops) {
  std::vector<StopString> prepared;
  prepared.reserve(stops.size());
  for (std::string& stop : stops) {
    assert(!stop.empty() && stop.size() <= std::numeric_limits<uint16_t>::max());
    std::vector<uint16_t> border = borders(stop);
    prepared.push_back({std::move(stop), std::move(border)});
  }
  return prepared;
}

StopMatcher::StopMatcher(std::span<const StopString> stops, bool include_stop)
    : stops_(stops), matched_(stops.size(), 0), include_stop_(include_stop) {}

StopStep StopMatcher::push(std::string_view delta) {
  if (which_) return {{}, which_};
  size_t end = held_.size();  // position in held_ + delta
  held_ += delta;
  size_t partial = 0;  // longest beginning of a stop string that the text ends with
  for (const size_t matched : matched_) partial = std::max(partial, matched);
  for (const char byte : delta) {
    ++end;
    partial = 0;
    for (size_t i = 0; i < stops_.size(); ++i) {
      const auto& [text, border] = stops_[i];
      size_t& matched = matched_[i];
      while (matched > 0 && text[matched] != byte) matched = border[matched - 1];
      if (text[matched] == byte) ++matched;
      partial = std::max(partial, matched);
      if (matched == text.size() && (!which_ || matched > stops_[*which_].text.size())) which_ = i;
    }
    if (!which_) continue;
    held_.resize(include_stop_ ? end : end - stops_[*which_].text.size());
    return {std::exchange(held_, {}), which_};
  }
  if (include_stop_) return {std::exchange(held_, {}), {}};
  std::string text = held_.substr(0, held_.size() - partial);
  held_.erase(0, text.size());
  return {std::move(text), {}};
}

StopStep StopMatcher::finish() {
  std::fill(matched_.begin(), matched_.end(), 0);
  return {std::exchange(held_, {}), which_};
}

}  // namespace quire
