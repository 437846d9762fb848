// quire pull: downloads a model, or brings it up to date.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/hub/model_names.h"
#include "model/registry.h"

namespace quire {
namespace {

DownloadSource downloadable(const std::string& name) {
  if (auto source = parse_download_source(name)) return std::move(*source);
  for (const RegisteredModel& model : registered_models()) {
    if (model.name == name)
      throw unsupported("{} ({}) comes with Quire's repository: download it with './dev fetch {}' there", name,
                        model.title, name);
  }
  throw not_found("'{}' cannot be downloaded; pass hf:ORG/REPO, ollama:NAME or an https URL of a .gguf file", name);
}

}  // namespace

void add_pull_command(CLI::App& app) {
  struct Flags {
    std::vector<std::string> names;
    DownloadOptions options{.update = true};
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("pull", "Download models, or bring them up to date");
  command
      ->add_option("NAME", flags->names,
                   "hf:ORG/REPO, hf:ORG/REPO:QUANT, hf:ORG/REPO:FILE, ollama:NAME:TAG or the URL of a .gguf file")
      ->type_name("NAME ...")
      ->required();
  command->add_option("--connections", flags->options.connections, "connections at a time for a file")
      ->check(CLI::Range(1, 32))
      ->type_name("N")
      ->capture_default_str();
  command->footer(
      "A download that was interrupted is continued. Every file's hash is checked.\n"
      "HF_TOKEN, HF_ENDPOINT, HF_HOME, HF_HUB_OFFLINE, OLLAMA_MODELS, https_proxy: docs/hub.md.");
  command->callback([flags] {
    std::vector<DownloadSource> sources;  // all names are checked before the first download
    for (const std::string& name : flags->names) sources.push_back(downloadable(name));
    for (const DownloadSource& source : sources) {
      const StoredModel found = download_and_show(source, flags->options);
      fmt::print("{}\n", found.path.string());
    }
  });
}

}  // namespace quire
