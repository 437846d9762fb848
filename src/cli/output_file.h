// Files that commands write.
#pragma once

#include <string>

namespace quire {

// Throws Error if the file exists, unless `force`, or is none: opening a FIFO would wait for a reader forever, and a device
// is not a model file. flag: what names it on the command line; empty: nothing does.
void check_output(const std::string& path, const std::string& flag, bool force);

}  // namespace quire
