// Names of models on the command line: hf:ORG/REPO and the like become the files that they stand for.
#pragma once

#include <CLI/CLI.hpp>

#include "hub/download_model.h"

namespace quire {

// To be called once all commands are added. Every command with an argument of type MODEL gets --offline. After the command
// line was read and found good, and before the command runs, each such argument that names a download is replaced by its
// path; what is not on this machine yet is downloaded. `serve` then serves the model under the name that was given.
void download_named_models(CLI::App& app);

// Downloads, shows how far it is, and lets Ctrl-C end it. options: all but its callbacks.
StoredModel download_and_show(const ModelSource& source, DownloadOptions options);

}  // namespace quire
