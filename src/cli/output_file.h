// Files and folders that commands write.
#pragma once

#include <filesystem>
#include <string>

namespace quire {

// Throws Error if the file exists, unless `force`, or is none: opening a FIFO would wait for a reader forever, and a device
// is not a model file. flag: what names it on the command line; empty: nothing does.
void check_output(const std::string& path, const std::string& flag, bool force);

// The same for a directory of a model. With `force` it may replace a directory that has a config.json, and no other; never the
// model that is read, `input`, nor a folder around it.
void check_output_folder(const std::string& path, const std::filesystem::path& input, bool force);

}  // namespace quire
