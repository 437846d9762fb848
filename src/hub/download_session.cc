#include "hub/download_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/files/file_lock.h"
#include "hub/digest.h"
#include "hub/hub_cache.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSpareSpace = uint64_t{64} << 20;  // that a download leaves free

std::string in_gigabytes(uint64_t bytes) { return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9); }

}  // namespace

bool is_switched_on(const char* variable) {
  const char* value = std::getenv(variable);
  if (!value) return false;
  const std::string text = in_lower_case(value);
  return text == "1" || text == "true" || text == "yes" || text == "on";
}

DownloadSession::DownloadSession(std::string model, const DownloadOptions& options)
    : model_(std::move(model)), options_(options) {
  const bool by_environment = is_switched_on("HF_HUB_OFFLINE");
  if (options.offline || by_environment) {
    const char* const by = options.offline ? "--offline" : "HF_HUB_OFFLINE";
    if (options.update) throw not_found("{} cannot be asked for, because {} forbids connections", model_, by);
    throw not_found("{} is not downloaded, and {} forbids connections; `quire list` shows what is there", model_, by);
  }
  access_.allow_http = is_switched_on("QUIRE_ALLOW_HTTP");
  access_.check = options.check;
  access_.note = options.note;
}

void DownloadSession::show(DownloadStatus::Stage stage, const WantedFile& file, uint64_t done_of_file) const {
  options_.status({.stage = stage,
                   .file = file.name,
                   .digest = file.digest,
                   .file_done = done_of_file,
                   .file_total = file.remote.size,
                   .done = done_ + done_of_file,
                   .total = total_});
}

void DownloadSession::store(const std::vector<WantedFile>& files, const fs::path& folder,
                            const RefusalHandler& refuse) {
  done_ = total_ = 0;
  uint64_t needed = 0;
  std::error_code ignored;
  for (const WantedFile& file : files) {
    total_ += file.remote.size;
    if (!file.replace && fs::exists(file.to, ignored)) continue;
    needed += file.remote.size - std::min(file.remote.size, PartialFile(file.to).allocated());
  }
  create_folder(folder);
  const fs::space_info space = fs::space(folder, ignored);
  if (!ignored && needed > 0 && (space.available < kSpareSpace || needed > space.available - kSpareSpace)) {
    throw no_resource(
        "{} needs {} more, but the disk of {} has only {} free; remove something (`quire list`, `quire rm`), or set "
        "HF_HOME to a folder of another disk",
        model_, in_gigabytes(needed), folder.string(), in_gigabytes(space.available));
  }
  for (const WantedFile& file : files) {
    if (file.replace || !fs::exists(file.to, ignored)) store_file(file, refuse);
    done_ += file.remote.size;
  }
}

void DownloadSession::store_file(const WantedFile& file, const RefusalHandler& refuse) {
  using Stage = DownloadStatus::Stage;
  create_folder(file.to.parent_path());
  create_folder(file.lock.parent_path());
  const auto lock = FileLock::take(file.lock, [&] {
    options_.check();
    show(Stage::kWaiting, file, 0);
  });
  std::error_code ignored;
  if (!file.replace && fs::exists(file.to, ignored)) return;  // by the program that had the lock
  const PartialFile partial(file.to);
  download_ranges(
      access_, file.remote, partial, options_.connections,
      [&](uint64_t done) { show(Stage::kDownloading, file, done); }, refuse);
  const auto kind = file.digest.size() == 64 ? DigestKind::kSha256 : DigestKind::kGitBlob;
  const std::string found = file.digest.empty() ? "" : digest_of_file(partial.content, kind, [&](uint64_t read) {
    options_.check();
    show(Stage::kChecking, file, read);
  });
  if (found != file.digest) {
    partial.remove();
    throw invalid(
        "{}: {} arrived damaged: its hash is {}, and must be {}. It was removed; try again, and if that repeats, "
        "something on the way changes what is downloaded",
        model_, file.name, found, file.digest);
  }
  fs::rename(partial.content, file.to, ignored);
  if (ignored) throw no_resource("{} cannot be renamed: {}", partial.content.string(), ignored.message());
  partial.remove();  // the journal
}

}  // namespace quire
