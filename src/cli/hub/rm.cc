// quire rm: removes downloaded models.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include "base/error.h"
#include "cli/commands.h"
#include "hub/download_model.h"
#include "model/registry.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

std::string in_megabytes(uint64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6); }

void ask_to_remove(const StoredModel& model) {
  if (!isatty(STDIN_FILENO)) throw CLI::ValidationError("--yes", "is needed to remove without a terminal to ask on");
  constexpr size_t kMostShown = 12;
  for (size_t i = 0; i < std::min(kMostShown, model.files.size()); ++i)
    fmt::print(stderr, "  {}\n", model.files[i].string());
  if (model.files.size() > kMostShown) fmt::print(stderr, "  and {} more\n", model.files.size() - kMostShown);
  fmt::print(stderr, "remove {}, {}? [y/N] ", model.name, in_megabytes(model.bytes));
  std::string answer;
  std::getline(std::cin, answer);
  if (answer != "y" && answer != "Y" && answer != "yes") throw invalid("nothing was removed");
}

void remove_model(const std::string& name, bool yes) {
  const auto source = parse_download_source(name);
  if (source) {
    const auto found = removable(*source);
    if (!found) throw not_found("{} is not downloaded; `quire list` shows what is there", name);
    if (!yes) ask_to_remove(*found);
    fmt::print("removed {}: {} freed\n", name, in_megabytes(remove_stored(*source)));
    return;
  }
  for (const RegisteredModel& model : registered_models()) {
    if (model.name != name) continue;
    StoredModel found{.name = name, .path = model_folder() / model.file};
    std::error_code error;
    found.bytes = fs::file_size(found.path, error);
    if (error) throw not_found("{} is not downloaded; `quire list` shows what is there", name);
    found.files = {found.path};
    if (!yes) ask_to_remove(found);
    if (!fs::remove(found.path, error))
      throw no_resource("{} cannot be removed: {}", found.path.string(), error.message());
    fmt::print("removed {}: {} freed\n", name, in_megabytes(found.bytes));
    return;
  }
  throw not_found("'{}' is not a name of `quire list`; files of your own are yours to remove", name);
}

}  // namespace

void add_rm_command(CLI::App& app) {
  auto name = std::make_shared<std::string>();
  auto yes = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("rm", "Remove a downloaded model");
  command
      ->add_option("NAME", *name,
                   "a name of `quire list`; hf:ORG/REPO without a quantization: everything of the repository")
      ->type_name("NAME")
      ->required();
  command->add_flag("-y,--yes", *yes, "do not ask");
  command->footer("What another model or revision uses stays.");
  command->callback([name, yes] { remove_model(*name, *yes); });
}

}  // namespace quire
