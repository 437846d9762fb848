// Finds stop strings in generated text, across token boundaries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct StopStep {
  std::string text;             // can be shown now
  std::optional<size_t> which;  // index of the stop string that ended the answer
  bool stopped() const { return which.has_value(); }

  bool operator==(const StopStep&) const = default;
};

// A stop string, prepared once per request (Knuth-Morris-Pratt).
struct StopString {
  std::string text;
  std::vector<uint16_t> border;  // border[i]: length of the longest proper border of text[0..i]
};
// No string may be empty or longer than 65,535 bytes.
std::vector<StopString> prepare_stops(std::vector<std::string> stops);

// Text goes in in pieces. Text that may be the beginning of a stop string is held back. The answer ends at the stop
// string that is complete first (of several that end at the same byte the longest, of equal ones the first in the
// list): before it or, with include_stop, after it. The result does not depend on how the text is cut into pieces. If
// pieces and stop strings consist of whole UTF-8 characters, so does the output. Time: bytes times number of stop
// strings.
class StopMatcher {
 public:
  // `stops` must outlive it.
  explicit StopMatcher(std::span<const StopString> stops, bool include_stop = false);

  // After a stop, returns empty text and the same `which`.
  StopStep push(std::string_view delta);
  // The answer has ended for another reason. Returns the text that was held back.
  StopStep finish();

 private:
  std::span<const StopString> stops_;
  std::vector<size_t> matched_;  // number of bytes of each stop string that the text so far ends with
  bool include_stop_;
  std::string held_;
  std::optional<size_t> which_;
};

}  // namespace quire
