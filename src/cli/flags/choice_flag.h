// Flags whose values are the names of an enumeration.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "engine/name_table.h"

namespace quire {

template <class Enum, size_t N>
std::vector<std::string> names_of(const NameTable<Enum, N>& table) {
  std::vector<std::string> names;
  for (const auto& [value, name] : table) names.emplace_back(name);
  return names;
}

// Reads one of the table's names into `value`, whose name is the default. `value` and `table` must outlive the option.
template <class Enum, size_t N>
CLI::Option* add_choice(CLI::App& app, const std::string& flags, Enum& value, const NameTable<Enum, N>& table,
                        const std::string& help) {
  const auto set = [&value, &table](const std::string& name) { value = find_value(table, name).value(); };
  return app.add_option_function<std::string>(flags, set, help)
      ->check(CLI::IsMember(names_of(table)))
      ->default_str(std::string(find_name(table, value)));
}

// Reads names of the table, with commas between them, into `values`; without the flag it stays as it is.
template <class Enum, size_t N>
CLI::Option* add_choices(CLI::App& app, const std::string& flags, std::vector<Enum>& values,
                         const NameTable<Enum, N>& table, const std::string& help) {
  const auto set = [&values, &table](const std::vector<std::string>& names) {
    values.clear();
    for (const std::string& name : names) values.push_back(find_value(table, name).value());
  };
  return app.add_option_function<std::vector<std::string>>(flags, set, help)
      ->check(CLI::IsMember(names_of(table)))
      ->delimiter(',');
}

}  // namespace quire
