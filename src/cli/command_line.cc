#include "cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <regex>
#include <sstream>
#include <string_view>

#include "base/text/nearest.h"

namespace quire {
namespace {

// CLI11's words, and ours.
const std::vector<std::pair<std::regex, const char*>>& rewrites() {
  static const std::vector<std::pair<std::regex, const char*>> table = {
      {std::regex(R"(^(\S+): (must .*)$)"), "$1 $2"},
      {std::regex(R"(^(\S+): (.* is not supported; use .*)$)"), "$1 $2"},
      {std::regex(R"(^(\S+): Value (.*) not in range \[?(\S+) (?:to|-) ([^\]]+)\]?$)"),
       "$1 must be between $3 and $4, not $2"},
      {std::regex(R"(^(\S+): (.*) not in \{(.*)\}.*$)"), "$1 must be one of $3, not $2"},
      {std::regex(R"(^Could not convert: (\S+) = (.*)$)"), "$1 must be a number in range, not $2"},
      {std::regex(R"(^The value (.*) is not an allowed value for (\S+)$)"), "$2 must be a number in range, not $1"},
      {std::regex(R"(^(\S+): 1 required (\S+) missing$)"), "$1 needs a value ($2)"},
      {std::regex(R"(^(\S+) excludes (\S+)$)"), "$1 cannot be combined with $2"},
      {std::regex(R"(^(\S+) requires (\S+)$)"), "$1 needs $2"},
      {std::regex(R"(^A subcommand is required$)"), "no command given; `quire help` lists the commands"},
      {std::regex(R"(^--model is required$)"),
       "--model is required: a known name (`quire list`), a .gguf file, a model directory or hf:ORG/REPO"},
      {std::regex(R"(^INI was not able to parse (?:.*\.)?([^.]+)$)"), "--config: there is no setting '$1'"},
      {std::regex(R"(^(.*) was not readable.*$)"), "--config: cannot read $1"},
  };
  return table;
}

// "0.050000" as std::to_string writes it.
std::string shorten_numbers(const std::string& text) {
  static const std::regex zeros(R"((\d+\.\d*?)0+(?=[ ,]|$))"), point(R"((\d+)\.(?=[ ,]|$))");
  return std::regex_replace(std::regex_replace(text, zeros, "$1"), point, "$1");
}

// The innermost command on the command line.
const CLI::App& chosen_command(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().back();
  return *command;
}

// Arguments that no command knows.
std::string describe_extras(const CLI::App& app) {
  const CLI::App& command = chosen_command(app);
  const std::vector<std::string> extras = app.remaining(true);
  const auto flag = std::ranges::find_if(extras, [](const std::string& argument) { return argument.starts_with('-'); });
  const std::string& culprit = flag == extras.end() ? extras.at(0) : *flag;
  const std::string name = culprit.substr(0, culprit.find('='));
  const std::string help = fmt::format("; `quire help {}` describes the command", command.get_name());
  if (flag != extras.end()) {
    const std::string hint = did_you_mean(name, flag_names(command));
    return fmt::format("unknown flag {}{}", name, hint.empty() ? help : "." + hint);
  }
  const std::vector<std::string> inner = command_names(command);
  const std::string hint = did_you_mean(culprit, inner);
  if (!hint.empty()) return fmt::format("unexpected argument '{}'.{}", culprit, hint);
  if (!inner.empty())
    return fmt::format("unexpected argument '{}'; {} has {}", culprit, command.get_name(), fmt::join(inner, ", "));
  const CLI::Option* prompt = command.get_option_no_throw("--prompt");
  const bool takes_text = prompt && prompt->get_type_name() == "TEXT";
  return fmt::format("unexpected argument '{}'{}", culprit, takes_text ? "; pass a prompt with -p \"TEXT\"" : help);
}

// Wraps at spaces; every line after the first begins with `indent` spaces.
std::string wrapped(std::string_view text, size_t width, size_t indent) {
  std::string out;
  size_t column = indent;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    if (column > indent && column + 1 + word.size() > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    at = end + 1;
  }
  return out;
}

constexpr size_t kHelpWidth = 80, kHelpIndent = 6;

class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() {
    column_width(20);
    label("SUBCOMMAND", "COMMAND");
    label("Subcommands", "Commands");
    label("OPTIONS", "FLAGS");
  }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string name = make_option_name(option, is_positional);
    for (size_t at = 0; (at = name.find(',', at)) != name.npos; at += 2) name.replace(at, 1, ", ");
    if (option->get_type_size() != 0 && !option->get_type_name().empty()) name += " " + plain_type(*option);
    std::string help = option->get_description();
    std::vector<std::string> notes;
    if (option->get_required()) notes.push_back("required");
    if (option->get_type_size() != 0 && !option->get_default_str().empty() && option->get_default_str() != "[]")
      notes.push_back("default: " + option->get_default_str());
    if (!option->get_envname().empty()) notes.push_back("or $" + option->get_envname());
    if (!notes.empty()) help += fmt::format(" ({})", fmt::join(notes, "; "));
    return fmt::format("  {}\n{}{}\n", name, std::string(kHelpIndent, ' '), wrapped(help, kHelpWidth, kHelpIndent));
  }

  std::string make_option_usage(const CLI::Option* option) const override {
    const std::string name = make_option_name(option, true) + (option->get_expected_max() > 1 ? "..." : "");
    return option->get_required() ? name : "[" + name + "]";
  }

  std::string make_subcommand(const CLI::App* command) const override {
    return fmt::format("  {:<12}{}\n", command->get_name(), wrapped(command->get_description(), kHelpWidth, 14));
  }

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    return std::regex_replace(CLI::Formatter::make_help(app, std::move(name), mode), std::regex("\n{3,}"), "\n\n");
  }

  std::string make_description(const CLI::App* app) const override {
    return wrapped(app->get_description(), kHelpWidth, 0) + "\n\n";
  }

  std::string make_footer(const CLI::App* app) const override {
    std::string out, line;
    for (std::istringstream lines(app->get_footer()); std::getline(lines, line);)
      out += (line.starts_with(' ') ? line : wrapped(line, kHelpWidth, 0)) + "\n";
    return out;
  }

 private:
  // INT in [0 - 9]:INT… is for programmers: N says enough, and a set shows its members.
  static std::string plain_type(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    if (const size_t open = type.find('{'); open != type.npos) {
      std::string set = type.substr(open + 1, type.find('}') - open - 1);
      std::ranges::replace(set, ',', '|');
      return set;
    }
    for (const char* number : {"INT", "UINT", "FLOAT"})
      if (type.starts_with(number)) return "N";
    return type;
  }
};

// Settings without a section belong to one command.
class CommandConfig final : public CLI::ConfigTOML {
 public:
  explicit CommandConfig(std::string command) : command_(std::move(command)) {}
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> items = CLI::ConfigTOML::from_config(input);
    for (CLI::ConfigItem& item : items) {
      if (item.parents.empty()) item.parents = {command_};
    }
    return items;
  }

 private:
  std::string command_;
};

// A description for a completion list, without what shells would interpret.
std::string one_line(std::string text, size_t longest) {
  std::erase_if(text, [](char c) { return c == '\'' || c == '\\' || c == '`' || c == '$' || c == '"'; });
  for (char& c : text)
    if (c == '\n' || c == '[' || c == ']' || c == ':') c = ' ';
  if (text.size() > longest) text = text.substr(0, text.find_last_of(' ', longest)) + " ...";
  return text;
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

std::string bash_script(const CLI::App& app) {
  std::string cases;
  for (const CLI::App* command : commands_of(app)) {
    std::vector<std::string> words = flag_names(*command);
    for (std::string& inner : command_names(*command)) words.push_back(std::move(inner));
    cases += fmt::format("    {}) words='{}' ;;\n", command->get_name(), fmt::join(words, " "));
  }
  return fmt::format(
      "# bash completion for quire: source <(quire completion bash)\n"
      "_quire() {{\n"
      "  local words='{}' current=${{COMP_WORDS[COMP_CWORD]}}\n"
      "  ((COMP_CWORD > 1)) && case ${{COMP_WORDS[1]}} in\n{}"
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "}}\n"
      "complete -o default -F _quire quire\n",
      fmt::join(command_names(app), " "), cases);
}

std::string zsh_script(const CLI::App& app) {
  std::string commands, cases;
  for (const CLI::App* command : commands_of(app)) {
    commands += fmt::format("    '{}:{}'\n", command->get_name(), one_line(command->get_description(), 70));
    std::string flags;
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames())
        flags += fmt::format("        '--{}:{}'\n", name, one_line(option->get_description(), 70));
    }
    cases += fmt::format("      {}) choices=(\n{}      ) ;;\n", command->get_name(), flags);
  }
  return fmt::format(
      "#compdef quire\n"
      "# zsh completion for quire: quire completion zsh > ~/.zfunc/_quire\n"
      "_quire() {{\n"
      "  local -a line_words=($words) choices=(\n{}  )\n"
      "  if ((CURRENT > 2)); then\n"
      "    [[ $PREFIX == -* ]] || {{ _files; return }}\n"
      "    case $line_words[2] in\n{}    esac\n"
      "  fi\n"
      "  _describe quire choices\n"
      "}}\n"
      "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _quire \"$@\"; else compdef _quire quire; fi\n",
      commands, cases);
}

std::string fish_script(const CLI::App& app) {
  std::string out = "# fish completion for quire: quire completion fish > ~/.config/fish/completions/quire.fish\n";
  for (const CLI::App* command : commands_of(app)) {
    out += fmt::format("complete -c quire -n __fish_use_subcommand -f -a {} -d '{}'\n", command->get_name(),
                       one_line(command->get_description(), 70));
    for (const CLI::Option* option : command->get_options()) {
      std::string names;
      for (const std::string& name : option->get_snames()) names += " -s " + name;
      for (const std::string& name : option->get_lnames()) names += " -l " + name;
      if (names.empty()) continue;
      out += fmt::format("complete -c quire -n '__fish_seen_subcommand_from {}'{}{} -d '{}'\n", command->get_name(),
                         names, option->get_type_size() != 0 ? " -r" : "", one_line(option->get_description(), 70));
    }
  }
  return out;
}

}  // namespace

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands_of(app)) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> flag_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string describe(const CLI::ParseError& error, const CLI::App& app) {
  const std::string message = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) return describe_extras(app);
  for (const auto& [pattern, words] : rewrites()) {
    if (std::regex_match(message, pattern)) return shorten_numbers(std::regex_replace(message, pattern, words));
  }
  return message;
}

std::shared_ptr<CLI::FormatterBase> make_help_formatter() { return std::make_shared<HelpFormatter>(); }

std::shared_ptr<CLI::Config> make_config_reader(const std::string& command) {
  return std::make_shared<CommandConfig>(command);
}

std::string completion_script(const CLI::App& app, const std::string& shell) {
  return shell == "bash" ? bash_script(app) : shell == "zsh" ? zsh_script(app) : fish_script(app);
}

}  // namespace quire
