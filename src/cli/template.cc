#include "cli/template.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "base/mapped_file.h"
#include "jinja/time.h"
#include "model/model_text.h"
#include "text/chat_template.h"

namespace quire {
namespace {

using nlohmann::ordered_json;

struct TemplateOptions {
  std::string file, model;
  std::optional<std::string> prompt;
};

struct Source {
  ChatTemplate chat;
  ordered_json special_tokens = ordered_json::object();
};

Source load(const TemplateOptions& options) {
  if (!options.file.empty()) return {ChatTemplate::parse(read_text_file(options.file, size_t{16} << 20), options.file)};
  if (!options.model.empty()) {
    const ModelText text = load_model_text(options.model);
    if (!text.template_source)
      throw not_found("{} has no chat template; give one with --template FILE.jinja", options.model);
    return {ChatTemplate::parse(*text.template_source, options.model), text.special_tokens};
  }
  throw invalid("quire template needs a template: give --template FILE.jinja or -m MODEL");
}

// One object of stdin. Fields that are not there have ChatInput's defaults, but no generation prompt is added unasked.
ChatInput input_of(const ordered_json& line, const ordered_json& special_tokens) {
  if (!line.is_object()) throw invalid("a line must be a JSON object with the field messages");
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

ordered_json answer(const Source& source, const std::string& line) {
  try {
    const ordered_json json = ordered_json::parse(line, nullptr, false);
    if (json.is_discarded()) throw invalid("the line is no JSON");
    return {{"text", source.chat.render(input_of(json, source.special_tokens))}};
  } catch (const Error& e) {
    return {{"error", e.what()}};
  }
}

void run(const TemplateOptions& options) {
  const Source source = load(options);
  if (options.prompt) {
    ChatInput in{.special_tokens = source.special_tokens};
    in.messages.push_back({{"role", "user"}, {"content", *options.prompt}});
    std::cout << source.chat.render(in) << "\n";
    return;
  }
  for (std::string line; std::getline(std::cin, line);)
    if (line.find_first_not_of(" \t\r") != std::string::npos)
      std::cout << answer(source, line).dump(-1, ' ', true, ordered_json::error_handler_t::replace) << std::endl;
}

}  // namespace

void add_template_command(CLI::App& app) {
  auto options = std::make_shared<TemplateOptions>();
  CLI::App* command = app.add_subcommand("template", "Show what a chat template makes of messages");
  CLI::Option* file =
      command->add_option("--template", options->file, "The chat template: a Jinja file")->type_name("FILE.jinja");
  command
      ->add_option("-m,--model", options->model, "Use the chat template of this model: a file, a directory or a name")
      ->type_name("MODEL")
      ->excludes(file);
  command->add_option("-p,--prompt", options->prompt, "Render this one user message and print the prompt as it is")
      ->type_name("TEXT");
  command->footer(
      "Without -p, reads one JSON object a line from stdin:\n"
      "  {\"messages\": [...], \"tools\": [...], \"kwargs\": {\"add_generation_prompt\": true, ...},\n"
      "   \"special_tokens\": {\"bos_token\": \"<s>\"}, \"now\": \"2026-11-21T12:34:56\"}\n"
      "All but messages may be left out; kwargs are variables of the template, besides add_generation_prompt,\n"
      "continue_final_message and documents. Writes a line for each: {\"text\": ...} or {\"error\": ...}.");
  command->callback([options] { run(*options); });
}

}  // namespace quire
