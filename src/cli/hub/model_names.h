// Names of models on the command line: hf:ORG/REPO and the like become the files that they stand for.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hub/download_model.h"

namespace quire {

// To be called once all commands are added. Every command with an argument of type MODEL gets --offline. After the command
// line was read and found good, and before the command runs, each such argument that names a download is replaced by its
// path; what is not on this machine yet is downloaded. `serve` takes models in other forms, and calls local_copy(); `plan`
// calls local_copy() or model_headers().
void download_named_models(CLI::App& app);

// A model that was downloaded, now or before.
struct LocalCopy {
  std::string path;
  std::vector<std::string> names;  // in requests: its own, and the one that was asked for
};
// Nothing if `asked` does not name a download. Downloads with a line on the terminal; throws Error.
std::optional<LocalCopy> local_copy(const std::string& asked, const DownloadOptions& options);
// Whether --offline was given to the command.
bool is_offline(const CLI::App& command);

// The headers of a model of the hub, without its weights.
class ModelHeaders {
 public:
  explicit ModelHeaders(std::filesystem::path folder) : folder_(std::move(folder)) {}
  ModelHeaders(const ModelHeaders&) = delete;
  ModelHeaders& operator=(const ModelHeaders&) = delete;
  ~ModelHeaders();

  std::filesystem::path path;  // to open; its weights are zeros

 private:
  const std::filesystem::path folder_;  // removed with it
};
// nullptr: `asked` is no model of the hub, or it is on this machine. Downloads with a line on the terminal; throws Error.
std::unique_ptr<ModelHeaders> model_headers(const std::string& asked, const DownloadOptions& options);

// Downloads, shows how far it is, and lets Ctrl-C end it. options: all but its callbacks.
StoredModel download_and_show(const DownloadSource& source, DownloadOptions options);

}  // namespace quire
