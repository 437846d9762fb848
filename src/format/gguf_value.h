// Internal to format/: GGUF metadata values as C++ values.
#pragma once

#include <cassert>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text/quote.h"
#include "format/gguf.h"

namespace quire::gguf_detail {

// The bytes of a scalar; the minimum of a string or an array.
size_t least_bytes(GgufType type);

Error wrong_type(std::string_view file, std::string_view key, std::string_view wanted, const GgufValue& value);

template <class T>
T load(std::span<const std::byte> bytes) {
  assert(bytes.size() >= sizeof(T));
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

inline std::string_view text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class T>
constexpr std::string_view kWanted = std::is_same_v<T, bool>       ? "BOOL"
                                     : std::is_integral_v<T>       ? "an integer"
                                     : std::is_floating_point_v<T> ? "F32 or F64"
                                                                   : "STRING";

template <class T>
T narrow(auto number, std::string_view file, std::string_view key) {
  if (!std::in_range<T>(number)) {
    throw invalid("{}: key {}: expected an integer from {} to {}, found {}", file, quote(key),
                  std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), number);
  }
  return static_cast<T>(number);
}

// The scalar of `type` at the start of `bytes` as a T; nullopt if the type does not convert.
template <class T>
std::optional<T> scalar(GgufType type, std::span<const std::byte> bytes, std::string_view file, std::string_view key) {
  if constexpr (std::is_same_v<T, bool>) {
    if (type == GgufType::BOOL) return load<uint8_t>(bytes) != 0;
  } else if constexpr (std::is_integral_v<T>) {
    switch (type) {
      case GgufType::U8:
        return narrow<T>(load<uint8_t>(bytes), file, key);
      case GgufType::I8:
        return narrow<T>(load<int8_t>(bytes), file, key);
      case GgufType::U16:
        return narrow<T>(load<uint16_t>(bytes), file, key);
      case GgufType::I16:
        return narrow<T>(load<int16_t>(bytes), file, key);
      case GgufType::U32:
        return narrow<T>(load<uint32_t>(bytes), file, key);
      case GgufType::I32:
        return narrow<T>(load<int32_t>(bytes), file, key);
      case GgufType::U64:
        return narrow<T>(load<uint64_t>(bytes), file, key);
      case GgufType::I64:
        return narrow<T>(load<int64_t>(bytes), file, key);
      default:
        break;
    }
  } else {
    if (type == GgufType::F32) return static_cast<T>(load<float>(bytes));
    if (type == GgufType::F64) return static_cast<T>(load<double>(bytes));
  }
  return std::nullopt;
}

template <class T>
T convert(const GgufValue& value, std::string_view file, std::string_view key) {
  if constexpr (std::is_constructible_v<T, std::string_view>) {
    if (value.type == GgufType::STRING) return T(text(value.bytes));
  } else if (value.type != GgufType::STRING && value.type != GgufType::ARRAY) {
    if (const auto number = scalar<T>(value.type, value.bytes, file, key)) return *number;
  }
  throw wrong_type(file, key, kWanted<T>, value);
}

}  // namespace quire::gguf_detail
