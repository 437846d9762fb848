// Durations as people and Go programs write them.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

namespace quire {

// "1h30m", "90s", "1.5s", "500ms"; a minus sign before all of it. Up to 10^6 hours; nullopt: no such duration.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

}  // namespace quire
