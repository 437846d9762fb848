// What was measured of one request.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace quire {

// All times in seconds since the start of the run.
struct RequestRecord {
  int planned_input = 0, planned_output = 0;  // tokens
  double intended = 0;                        // when the plan wanted it sent
  double sent = 0;
  double finished = 0;
  std::vector<double> pieces;        // arrival of each piece of the answer; usually one token each
  int input_tokens = 0;              // from the server's usage; without it, as planned
  int output_tokens = 0;             // from the server's usage; without it, the number of pieces
  std::optional<int> cached_tokens;  // prompt tokens found in a cache, if the server reports them
  std::string failure;               // empty: the request completed
};

}  // namespace quire
