#include "cli/hub/model_names.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/hub/download_line.h"
#include "cli/terminal/interruptible.h"

namespace quire {
namespace {

std::vector<CLI::Option*> model_options(CLI::App& command) {
  return command.get_options([](CLI::Option* option) { return option->get_type_name() == "MODEL"; });
}

// The names of the model in requests: its own, and the one that was asked for.
std::vector<std::string> served_names(const DownloadSource& source, const StoredModel& found,
                                      const std::string& asked) {
  if (const auto* hub = std::get_if<HubReference>(&source)) {
    const bool is_file = found.path.extension() == ".gguf";
    const std::string own = is_file ? found.path.stem().string() : std::filesystem::path(hub->repo).filename().string();
    return {own, hub->repo, asked};
  }
  if (const auto* ollama = std::get_if<OllamaReference>(&source)) {
    const std::string name = std::filesystem::path(ollama->name).filename().string();
    return {name + ":" + ollama->tag, name, asked};
  }
  return {found.path.stem().string(), asked};
}

void set(CLI::Option& option, const std::vector<std::string>& values) {
  option.clear();
  for (const std::string& value : values) option.add_result(value);
  option.run_callback();
}

void replace_names(CLI::App& command, const DownloadOptions& options) {
  for (CLI::Option* option : model_options(command)) {
    std::vector<std::string> values = option->results();
    for (std::string& value : values) {
      if (const auto found = local_copy(value, options)) value = found->path;
    }
    if (values != option->results()) set(*option, values);
  }
  for (CLI::App* inner : command.get_subcommands()) replace_names(*inner, options);
}

}  // namespace

std::optional<LocalCopy> local_copy(const std::string& asked, const DownloadOptions& options) {
  const auto source = parse_download_source(asked);
  if (!source) return std::nullopt;
  const StoredModel found = download_and_show(*source, options);
  return LocalCopy{found.path.string(), served_names(*source, found, asked)};
}

bool is_offline(const CLI::App& command) {
  const CLI::Option* const flag = command.get_option_no_throw("--offline");
  return flag && flag->count() > 0;
}

StoredModel download_and_show(const DownloadSource& source, DownloadOptions options) {
  std::optional<StoredModel> found;
  DownloadLine line;
  options.status = [&](const DownloadStatus& status) { line.show(status); };
  options.note = [&](const std::string& text) { line.note(text); };
  run_interruptible([&](const std::function<void()>& check) {
    options.check = [&] {
      try {
        check();
      } catch (...) {
        line.note("interrupted; what was downloaded stays, and the same command continues it");
        throw;
      }
    };
    found = find_or_download(source, options);
  });
  return std::move(*found);
}

void download_named_models(CLI::App& app) {
  auto offline = std::make_shared<bool>(false);
  const std::function<void(CLI::App&)> add_flag = [&](CLI::App& command) {
    for (CLI::App* inner : command.get_subcommands([](CLI::App*) { return true; })) add_flag(*inner);
    if (!model_options(command).empty())
      command.add_flag("--offline", *offline, "download nothing: a model that is not on this machine is an error");
  };
  add_flag(app);
  app.parse_complete_callback([&app, offline] {
    for (CLI::App* command : app.get_subcommands()) replace_names(*command, {.offline = *offline});
  });
}

}  // namespace quire
