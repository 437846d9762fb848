// Compares the stop matcher with a plain search of the whole text at every position.
#include "sampling/stop.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

namespace quire {
namespace {

StopStep stop_plainly(const std::string& text, const std::vector<std::string>& stops, bool include) {
  for (size_t end = 0; end <= text.size(); ++end) {
    StopStep step;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (!text.substr(0, end).ends_with(stops[i])) continue;
      if (!step.which || stops[i].size() > stops[*step.which].size()) step.which = i;
    }
    if (!step.which) continue;
    step.text = text.substr(0, include ? end : end - stops[*step.which].size());
    return step;
  }
  return {text, {}};
}

RC_GTEST_PROP(StopMatcher, EndsWhereThePlainSearchEndsForAnyPieces, ()) {
  // Two letters make stop strings that overlap themselves and each other.
  const auto word = rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab")));
  auto stops = *rc::gen::container<std::vector<std::string>>(word);
  std::erase(stops, "");
  for (std::string& stop : stops) stop.resize(std::min<size_t>(stop.size(), 7));
  const auto deltas = *rc::gen::container<std::vector<std::string>>(word);
  const bool include = *rc::gen::arbitrary<bool>();

  const std::vector<StopString> prepared = prepare_stops(stops);
  StopMatcher matcher(prepared, include);
  StopStep all;
  std::string text;
  for (const std::string& delta : deltas) {
    text += delta;
    const StopStep step = matcher.push(delta);
    all.text += step.text;
    all.which = step.which;
    // Not a moment too late: what is held back could still become part of a stop string.
    if (step.which || include) continue;
    const std::string held = text.substr(all.text.size());
    bool may_stop = held.empty();
    for (const std::string& stop : stops) may_stop = may_stop || (stop.size() > held.size() && stop.starts_with(held));
    RC_ASSERT(may_stop);
  }
  all.text += matcher.finish().text;
  RC_ASSERT(all == stop_plainly(text, stops, include));
}

}  // namespace
}  // namespace quire
