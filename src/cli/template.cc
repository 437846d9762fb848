#include "cli/commands.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "base/files/mapped_file.h"
#include "jinja/builtins/time.h"
#include "json/parse.h"
#include "model/model_text.h"
#include "text/chat_template.h"
#include "text/named_templates.h"

namespace quire {
namespace {

using nlohmann::ordered_json;

struct TemplateOptions {
  std::string file, model;
  std::optional<std::string> prompt;
};

struct TemplateSource {
  ChatTemplate chat;
  ordered_json special_tokens = ordered_json::object();
};

TemplateSource load_template(const TemplateOptions& options) {
  if (!options.file.empty()) return {ChatTemplate::parse(read_text_file(options.file, size_t{16} << 20), options.file)};
  if (!options.model.empty()) {
    ModelText text = load_model_text(options.model);
    std::optional<ChatTemplate> chat = parse_chat_template(text, options.model + ": chat template");
    if (!chat) throw not_found("{} has no chat template; pass one with --template FILE.jinja", options.model);
    return {std::move(*chat), text.special_tokens};
  }
  throw CLI::ValidationError("no template given: pass --template FILE.jinja or -m MODEL");
}

// One line of stdin. Missing fields have the defaults of ChatInput, except that no generation prompt is added.
ChatInput input_of(const ordered_json& line, const ordered_json& special_tokens) {
  if (!line.is_object()) throw invalid("a line must be a JSON object with a field \"messages\"");
  ChatInput in{.add_generation_prompt = false, .special_tokens = special_tokens};
  const auto flag = [](const std::string& name, const ordered_json& value) {
    if (!value.is_boolean()) throw invalid("kwargs: {} must be true or false, not {}", name, value.dump());
    return value.get<bool>();
  };
  for (const auto& [key, value] : line.items()) {
    if (key == "messages") {
      in.messages = value;
    } else if (key == "tools") {
      in.tools = value;
    } else if (key == "special_tokens") {
      if (!value.is_object()) throw invalid("special_tokens must be an object");
      in.special_tokens.update(value);
    } else if (key == "now") {
      if (!value.is_string()) throw invalid("now must be a time such as \"2026-11-21T12:34:56\"");
      in.now = jinja::parse_time(value.get<std::string>());
    } else if (key == "kwargs") {
      if (!value.is_object()) throw invalid("kwargs must be an object");
      for (const auto& [name, argument] : value.items()) {
        if (name == "add_generation_prompt")
          in.add_generation_prompt = flag(name, argument);
        else if (name == "continue_final_message")
          in.continue_final_message = flag(name, argument);
        else if (name == "documents")
          in.documents = argument;
        else
          in.kwargs[name] = argument;
      }
    }
  }
  return in;
}

ordered_json answer(const TemplateSource& source, const std::string& line) {
  try {
    if (!Json::accept(line)) throw invalid("this line is not valid JSON");
    return {{"text", source.chat.render(input_of(parse_json(line, ""), source.special_tokens))}};
  } catch (const Error& e) {
    return {{"error", e.what()}};
  }
}

// Answers each line, so that a program can talk to it.
void answer_lines(const TemplateSource& source) {
  int failed = 0, count = 0;
  for (std::string line; std::getline(std::cin, line);) {
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const ordered_json reply = answer(source, line);
    ++count;
    failed += reply.contains("error") ? 1 : 0;
    std::cout << reply.dump(-1, ' ', true, ordered_json::error_handler_t::replace) << std::endl;
  }
  if (failed > 0) throw invalid("{} of {} lines failed; standard output has their errors", failed, count);
}

void show_template(const TemplateOptions& options) {
  const TemplateSource source = load_template(options);
  if (!options.prompt) return answer_lines(source);
  ChatInput in{.special_tokens = source.special_tokens};
  in.messages.push_back({{"role", "user"}, {"content", *options.prompt}});
  std::cout << source.chat.render(in) << "\n";
}

}  // namespace

void add_template_command(CLI::App& app) {
  auto options = std::make_shared<TemplateOptions>();
  CLI::App* command = app.add_subcommand("template", "Show the prompt that a chat template makes of messages");
  CLI::Option* file = command->add_option("--template", options->file, "the chat template")->type_name("FILE.jinja");
  command
      ->add_option("-m,--model", options->model, "use the chat template of this model: a known name, file or directory")
      ->type_name("MODEL")
      ->excludes(file);
  command->add_option("-p,--prompt", options->prompt, "render this single user message and print the prompt")
      ->type_name("TEXT");
  command->footer(
      "Without -p, template reads standard input, one JSON object per line:\n"
      "  {\"messages\": [...], \"tools\": [...], \"kwargs\": {...},\n"
      "   \"special_tokens\": {\"bos_token\": \"<s>\"}, \"now\": \"2026-11-21T12:34:56\"}\n"
      "Only messages is required. kwargs are variables of the template; add_generation_prompt, continue_final_message "
      "and "
      "documents have their usual meaning there. For each line, template writes {\"text\": ...} or {\"error\": ...}. "
      "It "
      "exits with 1 if a line failed.");
  command->callback([options] { show_template(*options); });
}

}  // namespace quire
