// Names of models on the command line: hf:ORG/REPO and the like become the files that they stand for.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "hub/download_model.h"

namespace quire {

// To be called once all commands are added. Every command with an argument of type MODEL gets --offline. After the command
// line was read and found good, and before the command runs, each such argument that names a download is replaced by its
// path; what is not on this machine yet is downloaded. `serve` takes models in other forms, and calls local_copy().
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

// Downloads, shows how far it is, and lets Ctrl-C end it. options: all but its callbacks.
StoredModel download_and_show(const DownloadSource& source, DownloadOptions options);

}  // namespace quire
