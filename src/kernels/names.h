// Names of the kernels' enums, as flags and reports spell them.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "kernels/kernels.h"

namespace quire {

inline constexpr std::array<std::string_view, 3> kActivationsNames = {"f32", "bf16", "int8"};  // by value
inline constexpr std::array<std::string_view, 3> kKvTypeNames = {"f32", "bf16", "f16"};

constexpr std::string_view name(Activations a) { return kActivationsNames[static_cast<size_t>(a)]; }
constexpr std::string_view name(KvType type) { return kKvTypeNames[static_cast<size_t>(type)]; }

constexpr std::optional<Activations> activations_from_name(std::string_view name) {
  const auto found = std::ranges::find(kActivationsNames, name);
  if (found == kActivationsNames.end()) return std::nullopt;
  return static_cast<Activations>(found - kActivationsNames.begin());
}
constexpr std::optional<KvType> kv_type_from_name(std::string_view name) {
  const auto found = std::ranges::find(kKvTypeNames, name);
  if (found == kKvTypeNames.end()) return std::nullopt;
  return static_cast<KvType>(found - kKvTypeNames.begin());
}

}  // namespace quire
