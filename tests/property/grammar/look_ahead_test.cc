// Random regexes with anchors and look-ahead: exact, and without dead ends.
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <regex>
#include <set>

#include "base/error.h"
#include "grammar/char_set.h"
#include "grammar/regex_syntax.h"

namespace quire::grammar {
namespace {

const Budget kPlenty{.steps = 10'000'000, .nodes = 1'000'000};

std::string random_pattern(int depth) {
  const auto part = [&] { return random_pattern(depth - 1); };
  // Of full range also in early cases.
  switch (*rc::gen::resize(rc::kNominalSize, rc::gen::inRange(0, depth == 0 ? 4 : 13))) {
    case 0:
      return "a";
    case 1:
      return "b";
    case 2:
      return ".";
    case 3:
      return "";
    case 4:
      return "(?:" + part() + "|" + part() + ")";
    case 5:
      return "(?:" + part() + ")?";
    case 6:
      return "(?:" + part() + ")*";
    case 7:
      return "(?=" + part() + ")";
    case 8:
    case 9:
      return "(?!" + part() + ")";
    case 10:
      return part() + "$";
    default:
      return part() + part();
  }
}

// Whether each state that a text can reach is on the way to a complete text; true if there are too many states to tell.
bool has_no_dead_end(RegexStore& store, RegexId root) {
  std::map<RegexId, std::set<RegexId>> before;  // the states that each state is a derivative of
  std::vector<RegexId> states{root}, complete;
  before[root];
  for (size_t i = 0; i < states.size(); ++i) {
    if (states.size() > 500) return true;
    if (store.nullable(states[i])) complete.push_back(states[i]);
    for (size_t c = 0; c < store.classes(); ++c) {
      const RegexId next = store.derivative(states[i], static_cast<uint8_t>(c));
      if (next == kNothing) continue;
      if (!before.contains(next)) states.push_back(next);
      before[next].insert(states[i]);
    }
  }
  std::set<RegexId> alive(complete.begin(), complete.end());
  while (!complete.empty()) {
    const RegexId at = complete.back();
    complete.pop_back();
    for (const RegexId state : before[at]) {
      if (alive.insert(state).second) complete.push_back(state);
    }
  }
  return alive.size() == states.size();
}

RC_GTEST_PROP(LookAhead, IsExactAndHasNoDeadEnds, ()) {
  for (int i = 0; i < 40; ++i) {
    const std::string pattern = random_pattern(4);
    RegexStore store{kPlenty};
    CharEncoder encoder(store);
    RegexId root = kNothing;
    try {
      root = parse_regex(pattern, Anchoring::kWhole, Encoding::kUtf8, encoder, store, "test", 50);
    } catch (const Error&) {  // repeated look-ahead is not supported
      continue;
    }
    RC_LOG() << pattern << "\n";
    // As compiling does, before any derivative is asked for.
    RC_ASSERT(store.is_empty(root) || has_no_dead_end(store, root));
    const std::regex oracle(pattern, std::regex::ECMAScript);
    for (int j = 0; j < 10; ++j) {
      auto text = *rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c'));
      text.resize(std::min<size_t>(text.size(), 6));  // std::regex takes exponential time
      RC_ASSERT(store.matches(root, text) == std::regex_match(text, oracle));
    }
  }
}

}  // namespace
}  // namespace quire::grammar
