// Ends an answer at a stop string, wherever token boundaries fall.
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
  std::string text;             // what may be shown now
  std::optional<size_t> which;  // the stop string (index in the list) that ended the answer
  bool stopped() const { return which.has_value(); }

  bool operator==(const StopStep&) const = default;
};

// A stop string, prepared once for all answers of a request (Knuth-Morris-Pratt).
struct StopString {
  std::string text;
  std::vector<uint16_t> border;  // border[i] is the length of the longest proper border of text[0..i]
};
// None is empty or longer than 65,535 bytes.
std::vector<StopString> prepare_stops(std::vector<std::string> stops);

// Text goes in by pieces, and comes out late by what may still become a stop string. The answer ends where the first
// stop string is complete (the longest, if several end there; the first in the list, if they are equal), before it or,
// with include_stop, behind it. How the text is cut into pieces changes nothing. If pieces and stop strings are whole
// UTF-8 characters, so is all that comes out. Time: bytes times stop strings.
class StopMatcher {
 public:
  // `stops` outlive it.
  explicit StopMatcher(std::span<const StopString> stops, bool include_stop = false);

  // Once stopped, every further call gives empty text and the same `which`.
  StopStep push(std::string_view delta);
  // The answer ended for another reason: gives what was held back.
  StopStep finish();

 private:
  std::span<const StopString> stops_;
  std::vector<size_t> matched_;  // so many bytes of each stop string end the text so far
  bool include_stop_;
  std::string held_;
  std::optional<size_t> which_;
};

}  // namespace quire
