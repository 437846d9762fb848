// quire list: the models that have a name.

#include "cli/list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <string>

#include "cli/commands.h"
#include "hub/download_model.h"
#include "model/families.h"
#include "model/registry.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

std::string size_of(const fs::path& file) {
  std::error_code error;
  const auto bytes = fs::file_size(file, error);
  return error ? "unreadable" : fmt::format("{} MiB", (bytes + (1 << 20) - 1) >> 20);
}

void list_models() {
  const fs::path folder = model_folder();
  std::set<std::string> known;
  fmt::print("Known models (use the name with -m; ./dev fetch NAME downloads one):\n");
  for (const RegisteredModel& model : registered_models()) {
    known.insert(model.file);
    std::error_code ignored;
    const bool here = fs::exists(folder / model.file, ignored);
    fmt::print("  {:<14}{:<40}{}\n", model.name, model.title,
               here ? "downloaded, " + size_of(folder / model.file) : "not downloaded");
  }
  std::set<std::string> others;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!known.contains(name) &&
        (entry.path().extension() == ".gguf" || fs::exists(entry.path() / "config.json", ignored)))
      others.insert(name);
  }
  if (!others.empty()) fmt::print("Other models in {} (use the path with -m):\n", folder.string());
  for (const std::string& name : others) {
    const fs::path path = folder / name;
    fmt::print("  {}{}\n", path.string(), fs::is_directory(path, ignored) ? "" : "  " + size_of(path));
  }
  const std::vector<StoredModel> downloaded = stored_models();
  if (downloaded.empty()) return;
  fmt::print("Downloaded models (use the name with -m):\n");
  for (const StoredModel& model : downloaded)
    fmt::print("  {:<52}  {} MiB\n", model.name, (model.bytes + (1 << 20) - 1) >> 20);
}

}  // namespace

std::string families_markdown() {
  std::string text =
      "| family | models | `architectures` in config.json | GGUF architecture | cache |\n|---|---|---|---|---|\n";
  for (size_t i = 0; i < families().size(); ++i) {
    const Family& f = *families()[i];
    const FamilyDescription& d = family_descriptions()[i];
    const std::string gguf = f.gguf_architecture.empty() ? "–" : fmt::format("`{}`", f.gguf_architecture);
    const std::string hf =
        f.hf_architectures.empty() ? "–" : fmt::format("`{}`", fmt::join(f.hf_architectures, "`, `"));
    text += fmt::format("| {} | {} | {} | {} | {} |\n", f.name, d.models, hf, gguf, d.cache);
  }
  return text;
}

void add_list_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("list", "List the models known by name, and what is downloaded");
  auto families = std::make_shared<bool>(false), formats = std::make_shared<bool>(false);
  command->add_flag("--families", *families, "list the model families that can run, as a Markdown table");
  command->add_flag("--formats", *formats, "list the weight formats that can be loaded, as Markdown tables")
      ->excludes("--families");
  command->footer(
      "The folder of known models is $QUIRE_MODELS, or else ~/.cache/quire/models. Downloaded models are those in the "
      "caches of the Hugging Face hub and of Ollama, and the URLs of `quire pull` (docs/hub.md).");
  command->callback([families, formats] {
    if (*families) return fmt::print("{}", families_markdown());
    if (*formats) return fmt::print("{}\n{}", gguf_types_markdown(), quantization_methods_markdown());
    list_models();
  });
}

}  // namespace quire
