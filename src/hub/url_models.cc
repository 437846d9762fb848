#include "hub/url_models.h"

#include <charconv>

#include "base/error.h"
#include "base/files/file_lock.h"
#include "base/files/home_folder.h"
#include "base/files/mapped_file.h"
#include "base/files/whole_file.h"
#include "base/text/quote.h"
#include "hub/digest.h"
#include "hub/download_session.h"
#include "hub/http_url.h"
#include "json/field.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// Empty without a home folder.
fs::path downloads_folder() {
  const fs::path cache = cache_folder();
  return cache.empty() ? cache : cache / "downloads";
}

fs::path folder_of(const UrlReference& model) {
  const fs::path folder = downloads_folder();
  if (folder.empty()) throw not_found("there is no folder for downloads, because HOME is unset; set HOME");
  return folder / sha256_of(model.url).substr(0, 16);
}

// The URL's last part.
std::string file_name(const UrlReference& model) {
  const std::string path = shown_url(model.url);
  std::string name = path.substr(path.rfind('/') + 1);
  if (!is_plain_file_name(name) || name.size() > 200 || !in_lower_case(name).ends_with(".gguf"))
    throw invalid("{} does not name a GGUF file; of other servers than the hub Quire downloads .gguf files",
                  quote(path));
  return name;
}

std::string stored_etag(const fs::path& folder) {
  return JsonField::read(folder / "source.json").get<std::string>("etag");
}

std::optional<StoredModel> read_folder(const fs::path& folder) {
  const fs::path source = folder / "source.json";
  std::error_code ignored;
  if (!fs::is_regular_file(source, ignored)) return std::nullopt;
  const JsonField description = JsonField::read(source);
  const UrlReference model{.url = description.get<std::string>("url")};
  const fs::path file = folder / file_name(model);
  if (!fs::is_regular_file(file, ignored)) return std::nullopt;
  return StoredModel{.name = model.url,
                     .path = file,
                     .revision = description.get<std::string>("sha256"),
                     .bytes = fs::file_size(file, ignored),
                     .files = {file, source}};
}

}  // namespace

std::optional<StoredModel> find_url_model(const UrlReference& model) {
  file_name(model);
  auto found = read_folder(folder_of(model));
  if (!found || model.sha256.empty() || found->revision == model.sha256) return found;
  throw invalid("{} was downloaded with the SHA-256 {}, not {}; remove it with `quire rm` to download it again",
                model.url, found->revision, model.sha256);
}

StoredModel download_url_model(const UrlReference& model, const DownloadOptions& options) {
  const std::string shown = shown_url(model.url), name = file_name(model);
  DownloadSession session(shown, options);
  const RefusalHandler refuse = [&](const HttpReply& reply) {
    throw not_found("{} cannot be downloaded: HTTP {}{}", shown, reply.status,
                    reply.status == 404 ? "; there is no such file" : "");
  };
  const HttpReply head = http_head(session.access(), model.url, Redirects::kFollow);
  if (head.status != 200) refuse(head);
  const std::string length = head.header("content-length");
  uint64_t size = 0;
  const auto [end, error] = std::from_chars(length.data(), length.data() + length.size(), size);
  if (length.empty() || error != std::errc() || end != length.data() + length.size())
    throw invalid("{} does not say how large the file is (Content-Length)", shown);
  const fs::path folder = folder_of(model);
  const auto before = find_url_model({.url = model.url});
  const std::string etag = head.header("etag");
  const bool is_same = before && !etag.empty() && stored_etag(folder) == etag && before->bytes == size &&
                       (model.sha256.empty() || model.sha256 == before->revision);
  const WantedFile file{.name = name,
                        .remote = {.url = model.url, .etag = etag, .size = size},
                        .digest = model.sha256,
                        .to = folder / name,
                        .lock = folder / "lock",
                        .replace = before && !is_same};
  session.store({file}, folder, refuse);
  const std::string sha256 = model.sha256.empty() ? digest_of_file(file.to, DigestKind::kSha256) : model.sha256;
  if (model.sha256.empty()) options.note(shown + " came without a hash to check it by; its SHA-256 is " + sha256);
  write_whole_file(folder / "source.json", Json{{"url", model.url}, {"etag", etag}, {"sha256", sha256}}.dump(2) + "\n");
  auto found = read_folder(folder);
  if (!found) throw no_resource("{} is gone already", file.to.string());
  return std::move(*found);
}

std::vector<StoredModel> stored_url_models() {
  std::vector<StoredModel> models;
  std::error_code error;
  for (fs::directory_iterator at(downloads_folder(), error), end; !error && at != end; at.increment(error)) {
    try {
      if (auto found = read_folder(at->path())) models.push_back(std::move(*found));
    } catch (const Error&) {
      // Not written by us.
    }
  }
  return models;
}

uint64_t remove_url_model(const UrlReference& model) {
  const auto found = read_folder(folder_of(model));
  if (!found) return 0;
  const auto lock = FileLock::try_take(folder_of(model) / "lock");
  if (!lock) throw no_resource("{} is being downloaded by another program; nothing was removed", model.url);
  std::error_code ignored;
  fs::remove_all(folder_of(model), ignored);
  return found->bytes;
}

}  // namespace quire
