// Times and sizes in the texts and flags of quire plan.
#pragma once

#include <CLI/CLI.hpp>
#include <initializer_list>
#include <string>

namespace quire {

// "500ms", "0.5s" or seconds. What is wrong, or an empty string; sets `seconds`.
std::string read_seconds(const std::string& text, double& seconds);
CLI::Validator time_check();

// With three digits that matter: "1.34 GB", "320 us".
std::string in_units(double value, std::initializer_list<const char*> units);
std::string size_text(double bytes);
std::string duration_text(double seconds);

}  // namespace quire
