#include "cli/flags/constraint_flags.h"

#include <algorithm>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "grammar/compile.h"
#include "grammar/schema/closed_schema.h"
#include "json/parse.h"

namespace quire {
namespace {

constexpr size_t kMaxBytes = size_t{16} << 20;  // the largest file that is read; what may be compiled is less

bool spells_a_schema(const std::string& argument) {
  const size_t first = argument.find_first_not_of(" \t\n");
  return argument == "true" || argument == "false" || (first != argument.npos && argument[first] == '{');
}

Constraint compile_schema(const std::string& argument) {
  const bool is_text = spells_a_schema(argument);
  Json schema = parse_json(is_text ? argument : read_text_file(argument, kMaxBytes),
                           is_text ? "--json-schema" : argument, {.depth = 200});
  return grammar::compile_json_schema(grammar::closed_schema(std::move(schema)));
}

std::vector<std::string> split_choices(const std::vector<std::string>& arguments) {
  std::vector<std::string> choices;
  for (const std::string& argument : arguments) {
    for (size_t begin = 0; begin <= argument.size();) {
      const size_t end = std::min(argument.find(',', begin), argument.size());
      if (end == begin) throw CLI::ValidationError("--choice " + argument + " has an empty text; separate texts by ,");
      choices.push_back(argument.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return choices;
}

}  // namespace

std::vector<CLI::Option*> add_constraint_flags(CLI::App& command, ConstraintFlags& flags) {
  const auto not_empty = [](const std::string& text) { return text.empty() ? "must not be empty" : ""; };
  const std::vector<CLI::Option*> added = {
      command
          .add_option("--json-schema", flags.json_schema,
                      "the answer is JSON that matches this schema: a file, or the schema itself")
          ->type_name("FILE|TEXT")
          ->check(not_empty, "", ""),
      command.add_flag("--json-object", flags.json_object, "the answer is a JSON object"),
      command.add_option("--regex", flags.regex, "the whole answer matches this regex (ECMA-262)")->type_name("REGEX"),
      command.add_option("--choice", flags.choices, "the answer is one of these texts; may be repeated")
          ->type_name("TEXT,TEXT,...")
          ->check(not_empty, "", "")
          ->expected(1)
          ->allow_extra_args(false)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll),
      command.add_option("--grammar", flags.grammar_file, "the answer matches this grammar, in GBNF or EBNF")
          ->type_name("FILE")
          ->check(not_empty, "", "")};
  for (CLI::Option* option : added) {
    option->group("Structured output");
    for (CLI::Option* other : added) {
      if (other != option) option->excludes(other);
    }
  }
  return added;
}

Constraint compile_constraint(const ConstraintFlags& flags) try {
  if (flags.json_schema) return compile_schema(*flags.json_schema);
  if (flags.json_object) return grammar::compile_json_object();
  if (flags.regex) return grammar::compile_regex(*flags.regex);
  if (!flags.choices.empty()) return grammar::compile_choice(split_choices(flags.choices));
  if (flags.grammar_file) return grammar::compile_gbnf(read_text_file(*flags.grammar_file, kMaxBytes));
  return nullptr;
} catch (const Error& e) {
  const bool from_file = flags.grammar_file || (flags.json_schema && !spells_a_schema(*flags.json_schema));
  if (from_file || e.kind() != ErrorKind::kInvalid) throw;
  throw CLI::ValidationError(e.what());
}

}  // namespace quire
