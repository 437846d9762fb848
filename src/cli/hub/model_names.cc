#include "cli/hub/model_names.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "cli/hub/download_line.h"
#include "cli/terminal/interruptible.h"
#include "format/gguf_part.h"

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
  if (command.get_name() == "plan") return;  // it decides what it needs
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

namespace {

// Calls download(options), shows how far it is, and lets Ctrl-C end it. options: all but the callbacks.
void show_download(DownloadOptions options, const std::function<void(const DownloadOptions&)>& download) {
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
    download(options);
  });
}

// A header's bytes. Gguf::open() reads it whole, so a file whose header is not there yet may look broken.
uint64_t header_bytes(const std::filesystem::path& file, uint64_t there) {
  const MappedFile mapped(file);
  std::vector<std::byte> head(there);
  mapped.read(0, head);
  if (file.extension() == ".safetensors") {
    uint64_t length = 0;
    if (there < sizeof length) return sizeof length;
    std::memcpy(&length, head.data(), sizeof length);
    return length > mapped.bytes().size() ? there : sizeof length + length;  // no header: opening it says so
  }
  return read_gguf_part(head, mapped.bytes(), file.filename().string()) ? there : 2 * there;
}

}  // namespace

ModelHeaders::~ModelHeaders() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::unique_ptr<ModelHeaders> model_headers(const std::string& asked, const DownloadOptions& options) {
  const auto source = parse_download_source(asked);
  const HubReference* const model = source ? std::get_if<HubReference>(&*source) : nullptr;
  if (!model || find_stored(*source)) return nullptr;
  std::string folder = (std::filesystem::temp_directory_path() / "quire-plan-XXXXXX").string();
  if (!mkdtemp(folder.data()))
    throw no_resource("{} cannot be created: {}; set TMPDIR to a folder that can be written", folder,
                      std::strerror(errno));
  auto headers = std::make_unique<ModelHeaders>(folder);
  show_download(options, [&](const DownloadOptions& shown) {
    headers->path = download_heads(*model, folder, header_bytes, shown);
  });
  return headers;
}

StoredModel download_and_show(const DownloadSource& source, DownloadOptions options) {
  std::optional<StoredModel> found;
  show_download(std::move(options), [&](const DownloadOptions& shown) { found = find_or_download(source, shown); });
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
