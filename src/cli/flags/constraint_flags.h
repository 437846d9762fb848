// Structured output on the command line: --json-schema, --json-object, --regex, --choice, --grammar.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "quire/constraint.h"

namespace quire {

// At most one is set.
struct ConstraintFlags {
  std::optional<std::string> json_schema;  // a file or the schema itself
  bool json_object = false;
  std::optional<std::string> regex;
  std::vector<std::string> choices;  // each several, separated by commas
  std::optional<std::string> grammar_file;
};

// Adds the flags, of which a command line may have one. Returns them.
std::vector<CLI::Option*> add_constraint_flags(CLI::App& command, ConstraintFlags& flags);

// What answers must match; null: anything. Throws CLI::ValidationError if the command line itself spells something
// malformed, and Error if a file does, or if something is not supported or too large.
Constraint compile_constraint(const ConstraintFlags& flags);

}  // namespace quire
