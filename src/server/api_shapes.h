// Pieces that whole answers and streams share.
#pragma once

#include <charconv>
#include <numeric>
#include <string>
#include <string_view>

#include "server/bounded_json.h"

namespace quire {

inline std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

inline Json usage_json(int prompt_tokens, int completion_tokens) {
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", prompt_tokens + completion_tokens}};
}

// vLLM's stop_reason: a stop string, or a stop token's id as a number.
inline Json stop_reason_json(const std::string& reason, bool by_token) {
  int id = 0;
  const auto [end, error] = std::from_chars(reason.data(), reason.data() + reason.size(), id);
  const bool whole = error == std::errc() && end == reason.data() + reason.size();
  return by_token && whole ? Json(id) : Json(reason);
}

}  // namespace quire
