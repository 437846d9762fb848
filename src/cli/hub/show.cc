// quire show: where a model is, where it came from and what it is.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "cli/chat/output.h"
#include "cli/commands.h"
#include "cli/inspect/report.h"
#include "hub/download_model.h"
#include "model/registry.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

StoredModel find_model(const std::string& name) {
  if (const auto source = parse_download_source(name)) {
    if (auto found = find_stored(*source)) return std::move(*found);
    throw not_found("{} is not downloaded; `quire pull {}` downloads it, `quire list` shows what is there", name, name);
  }
  StoredModel found{.name = name, .path = resolve_model(name)};
  std::error_code ignored;
  if (!fs::is_directory(found.path, ignored)) {
    found.bytes = fs::file_size(found.path, ignored);
    found.files = {found.path};
    return found;
  }
  for (const auto& entry : fs::directory_iterator(found.path, ignored)) {
    if (!entry.is_regular_file(ignored)) continue;
    found.files.push_back(entry.path());
    found.bytes += entry.file_size(ignored);
  }
  return found;
}

ordered_json description_of(const std::string& name) {
  const StoredModel found = find_model(name);
  ordered_json report{{"name", found.name}, {"path", found.path.string()}};
  if (!found.revision.empty()) report["revision"] = found.revision;
  report["bytes"] = found.bytes;
  for (const fs::path& file : found.files) report["files"].push_back(file.string());
  const ordered_json whole = inspect(found.path, 64);
  for (const char* key : {"format", "architecture", "parameters", "quantization", "tensor_types", "sizes", "runs"})
    if (whole.contains(key)) report[key] = whole[key];
  return report;
}

void show_description(const ordered_json& report) {
  std::string text;
  const auto row = [&](const char* label, const ordered_json& value) {
    const std::string shown = value.is_string() ? value.get<std::string>() : value.dump();
    text += fmt::format("{:<14} {}\n", std::string(label) + ":", escape_controls(shown, true));
  };
  const auto row_if = [&](const char* label) {
    if (report.contains(label) && !report[label].is_null() && report[label] != "") row(label, report[label]);
  };
  row("name", report["name"]);
  row("path", report["path"]);
  row_if("revision");
  const size_t files = report["files"].size();
  row("size", fmt::format("{:.1f} MB in {} file{}", report["bytes"].get<double>() / 1e6, files, files == 1 ? "" : "s"));
  for (const char* label : {"format", "architecture", "quantization"}) row_if(label);
  row("parameters", fmt::format("{:.1f} M", report["parameters"].get<double>() / 1e6));
  if (report["sizes"].is_object() && report["sizes"].contains("context")) row("context", report["sizes"]["context"]);
  const ordered_json& runs = report["runs"];
  row("supported",
      runs["ok"] == true ? ordered_json("yes") : ordered_json("no: " + runs["why_not"].get<std::string>()));
  write_out(STDOUT_FILENO, text + "`quire inspect` shows more.\n");
}

}  // namespace

void add_show_command(CLI::App& app) {
  auto name = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("show", "Show where a model of this machine is, and what it is");
  command->add_option("NAME", *name, "as for -m; nothing is downloaded")->type_name("NAME")->required();
  command->add_flag("--json", *json, "print a JSON object, with all files");
  command->callback([name, json] {
    const ordered_json report = description_of(*name);
    if (!*json) return show_description(report);
    write_out(STDOUT_FILENO, report.dump(2, ' ', true, ordered_json::error_handler_t::replace) + "\n");
  });
}

}  // namespace quire
