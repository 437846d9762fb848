// The files of src/server/dashboard, compiled into the program (cmake/EmbedFiles.cmake).
#pragma once

#include <span>
#include <string_view>

namespace quire {

struct DashboardFile {
  std::string_view name;  // "style.css"
  std::string_view content;
};

// By name.
std::span<const DashboardFile> dashboard_files();

}  // namespace quire
