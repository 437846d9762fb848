// The clock of strftime_now.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace quire::jinja {

// Python's datetime.strftime in the C locale, of a time without a zone. Error: a format too long, a padding width.
std::string format_time(std::chrono::local_seconds time, std::string_view format);

std::chrono::local_seconds parse_time(std::string_view iso);  // "2026-11-21T12:34:56"; Error: anything else
std::chrono::local_seconds local_now();

}  // namespace quire::jinja
