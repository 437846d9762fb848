#include "cli/serve/downloaded_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/text/quote.h"
#include "hub/download_model.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// Ollama's programs write models of the hub as hf.co/ORG/REPO:QUANT, and its own without a prefix.
DownloadSource source_of(const std::string& name) {
  for (const std::string_view host : {"hf.co/", "huggingface.co/"}) {
    if (name.starts_with(host)) return *parse_download_source("hf:" + name.substr(host.size()));
  }
  if (auto source = parse_download_source(name)) return std::move(*source);
  return *parse_download_source("ollama:" + name);
}

PullProgress progress_of(const DownloadStatus& status) {
  using Stage = DownloadStatus::Stage;
  if (status.stage == Stage::kWaiting)
    return {.status = fmt::format("waiting for another download of {}", status.file)};
  const bool is_sha256 = status.digest.size() == 64;
  const std::string shown = is_sha256 ? status.digest.substr(0, 12) : status.file;
  return {.status = fmt::format("{} {}", status.stage == Stage::kChecking ? "verifying" : "pulling", shown),
          .digest = is_sha256 ? "sha256:" + status.digest : "",
          .total = status.file_total,
          .completed = status.file_done};
}

class DownloadedModels final : public ModelStore {
 public:
  DownloadedModels(std::vector<fs::path> served, bool offline) : served_(std::move(served)), offline_(offline) {}

  std::string pull(const std::string& name, const std::function<void(const PullProgress&)>& show,
                   const std::function<void()>& check) override {
    const DownloadSource source = source_of(name);
    show({.status = "pulling manifest"});
    find_or_download(source, {.offline = offline_,
                              .update = true,
                              .status = [&](const DownloadStatus& status) { show(progress_of(status)); },
                              .check = check,
                              .note = [&](const std::string& note) { show({.status = note}); }});
    return source_name(source);
  }

  bool remove(const std::string& name) override {
    const DownloadSource source = source_of(name);
    const auto found = removable(source);
    if (!found) return false;
    for (const fs::path& file : found->files) {
      if (is_served(file))
        throw invalid("{} is not deleted, because this server serves {}", quote(name), file.string());
    }
    remove_stored(source);
    return true;
  }

 private:
  // Whether the file is one of a served model, under this name or another.
  bool is_served(const fs::path& file) const {
    std::error_code ignored;
    return std::ranges::any_of(served_, [&](const fs::path& model) {
      return fs::equivalent(model, file, ignored) || fs::equivalent(model, file.parent_path(), ignored);
    });
  }

  const std::vector<fs::path> served_;
  const bool offline_;
};

}  // namespace

std::shared_ptr<ModelStore> downloaded_models(std::vector<fs::path> served, bool offline) {
  return std::make_shared<DownloadedModels>(std::move(served), offline);
}

}  // namespace quire
