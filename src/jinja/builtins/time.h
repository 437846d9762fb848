// The clock of strftime_now.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace quire::jinja {

// Python's datetime.strftime in the C locale, without a time zone. Error: a format that is too long or has a width.
std::string format_time(std::chrono::local_seconds time, std::string_view format);

std::chrono::local_seconds parse_time(std::string_view iso);  // "2026-11-21T12:34:56"; Error for anything else
std::chrono::local_seconds local_now();

}  // namespace quire::jinja
