// The names of numeric types, as options and reports spell them.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/kernels.h"

namespace quire {

template <class Enum, size_t N>
using NameTable = std::array<std::pair<Enum, std::string_view>, N>;

inline constexpr NameTable<Activations, 4> kActivationsNames = {{{Activations::kF32, "f32"},
                                                                 {Activations::kBf16, "bf16"},
                                                                 {Activations::kInt8, "int8"},
                                                                 {Activations::kInt8x2, "int8x2"}}};
inline constexpr NameTable<KvType, 4> kKvTypeNames = {
    {{KvType::kBf16, "bf16"}, {KvType::kF16, "f16"}, {KvType::kF32, "f32"}, {KvType::kInt8, "int8"}}};

template <class Enum, size_t N>
constexpr std::string_view find_name(const NameTable<Enum, N>& table, Enum value) {
  for (const auto& [entry, name] : table) {
    if (entry == value) return name;
  }
  return {};
}
constexpr std::string_view name(Activations a) { return find_name(kActivationsNames, a); }
constexpr std::string_view name(KvType t) { return find_name(kKvTypeNames, t); }

template <class Enum, size_t N>
constexpr std::optional<Enum> find_value(const NameTable<Enum, N>& table, std::string_view name) {
  for (const auto& [entry, known] : table) {
    if (known == name) return entry;
  }
  return std::nullopt;
}

// "f32, bf16 or int8"
template <class Enum, size_t N>
std::string list_names(const NameTable<Enum, N>& table) {
  std::string list;
  for (size_t i = 0; i < N; ++i) {
    if (i > 0) list += i + 1 == N ? " or " : ", ";
    list += table[i].second;
  }
  return list;
}

}  // namespace quire
