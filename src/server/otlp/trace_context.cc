#include "server/otlp/trace_context.h"

#include <algorithm>
#include <span>

namespace quire {
namespace {

constexpr size_t kSize = 55;  // 00-TRACE-PARENT-FLAGS: 2 + 1 + 32 + 1 + 16 + 1 + 2
constexpr size_t kLongestState = 512;

// -1: no lower-case hexadecimal digit.
int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool read_hex(std::string_view text, std::span<uint8_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return true;
}

bool any_set(std::span<const uint8_t> id) {
  return std::ranges::any_of(id, [](uint8_t byte) { return byte != 0; });
}

}  // namespace

std::optional<TraceContext> parse_traceparent(std::string_view header) {
  constexpr uint8_t kInvalidVersion = 0xff;
  if (header.size() < kSize || header[2] != '-' || header[35] != '-' || header[52] != '-') return std::nullopt;
  std::array<uint8_t, 1> version{}, flags{};
  TraceContext context;
  if (!read_hex(header.substr(0, 2), version) || !read_hex(header.substr(3, 32), context.trace) ||
      !read_hex(header.substr(36, 16), context.parent) || !read_hex(header.substr(53, 2), flags))
    return std::nullopt;
  if (version[0] == kInvalidVersion || !any_set(context.trace) || !any_set(context.parent)) return std::nullopt;
  if (header.size() > kSize && (version[0] == 0 || header[kSize] != '-')) return std::nullopt;
  context.sampled = (flags[0] & 1) != 0;
  return context;
}

bool is_tracestate(std::string_view header) {
  return !header.empty() && header.size() <= kLongestState &&
         std::ranges::all_of(header, [](char c) { return (c >= 0x20 && c < 0x7f) || c == '\t'; });
}

}  // namespace quire
