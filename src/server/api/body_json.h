// JSON from clients: parsed in linear time, with bounds on depth and on the number of values.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace quire {

using Json = nlohmann::ordered_json;

inline constexpr int kMaxBodyDepth = 64;             // nested objects and arrays: what recurses over a value is safe
inline constexpr size_t kMaxBodyValues = 1'000'000;  // a prompt of token ids is the largest body there is

// The document; keys keep their order, of equal keys the last one wins. Throws ApiError (400): broken JSON, invalid
// UTF-8, a number out of range, nested too deeply, too many values. `param` is the field the text came from, empty for
// a body.
Json parse_bounded_json(std::string_view text, std::string_view param = {});

// A value for an error message: short, on one line, well-formed UTF-8.
std::string describe(const Json& value);

}  // namespace quire
