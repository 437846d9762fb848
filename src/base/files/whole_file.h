// Small files that appear under their names only when they are complete.
#pragma once

#include <filesystem>
#include <string_view>

namespace quire {

// Writes NAME.tmp and renames it, so an error leaves an older file as it was. Throws Error naming the file: it cannot be
// created (kInvalid), the disk is full (kResource).
void write_whole_file(const std::filesystem::path& path, std::string_view content);

}  // namespace quire
