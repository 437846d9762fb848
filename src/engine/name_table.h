// Enumerations that flags and reports spell: one table of names for each.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace quire {

template <class Enum, size_t N>
using NameTable = std::array<std::pair<Enum, std::string_view>, N>;

template <class Enum, size_t N>
constexpr std::string_view find_name(const NameTable<Enum, N>& table, Enum value) {
  for (const auto& [entry, name] : table) {
    if (entry == value) return name;
  }
  return {};
}

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
