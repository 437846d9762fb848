// Orders as JSON: in recordings, and between processes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/step/forward.h"
#include "json/field.h"

namespace quire {

// An order in its own memory: the views of `input` are of the other members.
struct ReceivedForward {
  ForwardInput input;
  std::vector<std::vector<std::vector<int32_t>>> tables;  // [spans][groups]
  std::vector<std::vector<StateCopy>> state_copies;       // [spans]

  ReceivedForward() = default;
  ReceivedForward(ReceivedForward&&) = default;  // the views stay valid
  ReceivedForward& operator=(ReceivedForward&&) = default;
};

Json to_json(const ForwardInput& input);
// Checks the form alone, and that rows and spans belong together. Throws JsonError.
ReceivedForward read_forward(const JsonField& json);

// Numbers as their bits: JSON has no form for those that are not finite.
Json bits_of(std::span<const float> numbers);
std::vector<float> read_bits(const JsonField& json);

Json to_json(const CacheChanges& changes);
CacheChanges read_changes(const JsonField& json);

}  // namespace quire
