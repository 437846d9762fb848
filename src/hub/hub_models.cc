#include "hub/hub_models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <set>

#include "base/cpu.h"
#include "base/error.h"
#include "base/files/home_folder.h"
#include "base/files/mapped_file.h"
#include "base/files/whole_file.h"
#include "base/text/quote.h"
#include "hub/choose_files.h"
#include "hub/digest.h"
#include "hub/download_session.h"
#include "hub/http_url.h"
#include "hub/hub_cache.h"
#include "json/field.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndex = "model.safetensors.index.json";

fs::path existing_cache() {
  fs::path cache = hub_cache_folder();
  if (cache.empty())
    throw not_found(
        "there is no folder for downloads, because HOME is unset and this user has no home folder; set HF_HOME");
  return cache;
}

StoredModel stored(const HubReference& model, const CachedRepo& repo, const std::string& commit,
                   const FileChoice& choice) {
  StoredModel found{
      .name = source_name(model), .path = repo.snapshot(commit), .revision = commit, .bytes = choice.bytes()};
  if (!choice.main.empty()) found.path /= choice.main;
  for (const RepoFile& file : choice.files) found.files.push_back(repo.snapshot(commit) / file.path);
  return found;
}

// Whether all weights that the directory's index names are there: a download of several files may have been cut.
bool has_all_weights(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder / kIndex, ignored)) return true;
  std::set<std::string> files;
  for (const auto& [tensor, file] : JsonField::read(folder / kIndex).at("weight_map").members())
    files.insert(file.string());
  return std::ranges::all_of(files, [&](const std::string& file) {
    return is_path_inside(file) && fs::is_regular_file(folder / file, ignored);
  });
}

// The weights in a snapshot, if they are complete.
std::optional<FileChoice> complete_choice(const CachedRepo& repo, const std::string& commit,
                                          const HubReference& model) {
  try {
    FileChoice choice = choose_files(repo.files(commit), model.choice, available_memory(), source_name(model));
    if (choice.main.empty() && !has_all_weights(repo.snapshot(commit))) return std::nullopt;
    return choice;
  } catch (const Error&) {
    return std::nullopt;  // it has other files than those asked for
  }
}

std::string api_url(const HubReference& model) {
  return fmt::format("{}/api/models/{}/revision/{}?blobs=true", hub_endpoint(), model.repo,
                     escape_path(model.revision, false));
}

std::string file_url(const HubReference& model, const std::string& commit, const std::string& path) {
  return fmt::format("{}/{}/resolve/{}/{}", hub_endpoint(), model.repo, commit, escape_path(path, true));
}

// The hash in an ETag header: "abc", W/"abc". Throws Error unless it can be the name of a file.
std::string read_etag(const HttpReply& reply) {
  std::string etag = reply.header("x-linked-etag");
  if (etag.empty()) etag = reply.header("etag");
  if (etag.starts_with("W/")) etag.erase(0, 2);
  std::erase(etag, '"');
  const auto is_plain = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; };
  if (etag.empty() || etag.size() > 128 || !std::ranges::all_of(etag, is_plain))
    throw invalid("{} has the ETag {}, which names no content; if HF_ENDPOINT is set, is that a hub?",
                  shown_url(reply.url), quote(etag));
  return etag;
}

uint64_t read_size(const HttpReply& reply, uint64_t listed) {
  for (const char* name : {"x-linked-size", "content-length"}) {
    if (name[0] == 'c' && reply.is_redirect()) continue;  // the length of the redirect
    const std::string text = reply.header(name);
    uint64_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (!text.empty() && error == std::errc() && end == text.data() + text.size() && size <= uint64_t{1} << 60)
      return size;
  }
  if (listed == 0) throw invalid("{} does not say how large the file is", shown_url(reply.url));
  return listed;
}

void describe_choice(const HubReference& model, const FileChoice& choice, const DownloadOptions& options) {
  if (!model.choice.empty()) return;
  const std::string name = choice.quant.empty() ? choice.main : choice.quant;
  std::string others;
  if (!choice.others.empty())
    others = fmt::format(
        "; others: {}",
        fmt::join(choice.others.begin(), choice.others.begin() + std::min<long>(24, std::ssize(choice.others)), ", "));
  options.note(fmt::format("{}: {} ({}{})", source_name(model), name, choice.reason, others));
}

}  // namespace

std::string hub_endpoint() {
  const char* value = std::getenv("HF_ENDPOINT");
  std::string endpoint = value && *value ? value : "https://huggingface.co";
  while (endpoint.ends_with('/')) endpoint.pop_back();
  return endpoint;
}

std::string hub_token() {
  std::string token;
  for (const char* variable : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (const char* value = std::getenv(variable); value && *value && token.empty()) token = value;
  }
  if (token.empty() && !is_switched_on("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
    const char* const path = std::getenv("HF_TOKEN_PATH");
    const char* const home = std::getenv("HF_HOME");
    const fs::path user = home_folder();
    const fs::path file = path && *path   ? fs::path(path)
                          : home && *home ? fs::path(home) / "token"
                          : user.empty()  ? user
                                          : user / ".cache/huggingface/token";
    std::error_code ignored;
    if (fs::is_regular_file(file, ignored)) token = read_text_file(file, 4096);
  }
  while (!token.empty() && static_cast<unsigned char>(token.back()) <= ' ') token.pop_back();
  while (!token.empty() && static_cast<unsigned char>(token.front()) <= ' ') token.erase(0, 1);
  // Anything else would be a second header.
  if (!std::ranges::all_of(token, [](unsigned char c) { return c > ' ' && c < 0x7f; }))
    throw invalid("HF_TOKEN has characters that no token has; copy it again from {}/settings/tokens", hub_endpoint());
  return token;
}

void refuse_hub_model(const HubReference& model, const HttpReply& reply, bool has_token) {
  const std::string name = source_name(model);
  const std::string code = reply.header("x-error-code");
  const std::string page = fmt::format("{}/{}", hub_endpoint(), model.repo);
  const std::string tokens = fmt::format("{}/settings/tokens", hub_endpoint());
  if (code == "GatedRepo") {
    if (has_token)
      throw not_found(
          "{}: the repository is gated, and the account of your token has no access yet; accept its licence at {}",
          name, page);
    throw not_found("{}: the repository is gated; accept its licence at {}, then set HF_TOKEN to a token of {}", name,
                    page, tokens);
  }
  if (code == "RevisionNotFound")
    throw not_found("{}: the repository has no revision {}; {}/tree/main shows its branches", name,
                    quote(model.revision), page);
  if (code == "EntryNotFound")
    throw not_found("{}: the file {} is not in the repository", name, quote(shown_url(reply.url)));
  if (reply.status == 401 && has_token)
    throw not_found("{}: the hub does not accept your token (HF_TOKEN); make a new one at {}", name, tokens);
  if (code == "RepoNotFound" || reply.status == 401 || reply.status == 404) {
    throw not_found(
        "{}: there is no public repository of this name at {}; check the name, or if it is private, set HF_TOKEN to a "
        "token that may read it",
        name, hub_endpoint());
  }
  if (reply.status == 403)
    throw not_found("{}: the hub forbids the download (HTTP 403{}); your token may lack the right to read it", name,
                    reply.header("x-error-message").empty() ? "" : ": " + quote(reply.header("x-error-message")));
  throw no_resource("{}: HTTP {} of {}", name, reply.status, shown_url(reply.url));
}

std::optional<StoredModel> find_hub_model(const HubReference& model) {
  const CachedRepo repo(existing_cache(), model.repo);
  const auto commit = repo.commit_of(model.revision);
  if (!commit) return std::nullopt;
  const auto choice = complete_choice(repo, *commit, model);
  return choice ? std::optional(stored(model, repo, *commit, *choice)) : std::nullopt;
}

namespace {

// Lets the session send the user's token. Returns what refuses the model; it must not outlive `model`.
RefusalHandler authorize(DownloadSession& session, const HubReference& model) {
  session.access().token = hub_token();
  session.access().token_origin = checked_origin(hub_endpoint(), session.access().allow_http);
  return [&model, has_token = !session.access().token.empty()](const HttpReply& reply) {
    refuse_hub_model(model, reply, has_token);
  };
}

Repository list_repository(DownloadSession& session, const HubReference& model, const RefusalHandler& refuse,
                           const DownloadOptions& options) {
  const HttpReply listing = http_get(session.access(), api_url(model));
  if (listing.status != 200) refuse(listing);
  Repository repository = parse_repository(listing.body, session.model());
  if (repository.id != model.repo)
    options.note(fmt::format("{}: the repository is now called {}", session.model(), quote(repository.id)));
  return repository;
}

}  // namespace

StoredModel download_hub_model(const HubReference& model, const DownloadOptions& options) {
  DownloadSession session(source_name(model), options);
  const RefusalHandler refuse = authorize(session, model);
  const Repository repository = list_repository(session, model, refuse, options);
  const FileChoice choice = choose_files(repository.files, model.choice, available_memory(), session.model());
  describe_choice(model, choice, options);

  const CachedRepo repo(existing_cache(), model.repo);
  std::vector<WantedFile> files;
  std::error_code ignored;
  for (const RepoFile& file : choice.files) {
    if (fs::is_regular_file(repo.snapshot(repository.commit) / file.path, ignored)) continue;
    // What the client of the hub asks, too: its cache is named by the answer.
    const HttpReply head =
        http_head(session.access(), file_url(model, repository.commit, file.path), Redirects::kSameHost);
    if (head.status != 200 && !head.is_redirect()) refuse(head);
    const std::string etag = read_etag(head);
    const bool is_hash = is_hex(etag, 64) || is_hex(etag, 40);
    files.push_back({.name = file.path,
                     .remote = {.url = head.url, .etag = etag, .size = read_size(head, file.size)},
                     .digest = is_hash ? etag : "",
                     .to = repo.blob(etag),
                     .lock = repo.lock_file(etag)});
  }
  session.store(files, repo.folder(), refuse);
  size_t i = 0;
  for (const RepoFile& file : choice.files) {
    if (i < files.size() && files[i].name == file.path) repo.link(repository.commit, file.path, files[i++].remote.etag);
  }
  repo.set_commit(model.revision, repository.commit);
  StoredModel found = stored(model, repo, repository.commit, choice);
  found.bytes = 0;
  for (const fs::path& file : found.files) found.bytes += fs::file_size(file, ignored);
  return found;
}

namespace {

// The files of a directory that say nothing about its weights.
bool is_of_tokenizer(const std::string& path) {
  return path.starts_with("tokenizer") || path.starts_with("vocab.") || path.starts_with("merges.") ||
         path.ends_with(".jinja");
}

// Writes the beginning of a file, as much as is needed, and gives the file its whole size.
void download_head(const std::string& url, const fs::path& file, const NeededHead& needed, const HttpAccess& access,
                   const RefusalHandler& refuse) {
  constexpr uint64_t kFirst = uint64_t{256} << 10;  // more than most headers of safetensors have
  create_folder(file.parent_path());
  uint64_t there = 0, size = 0;
  for (uint64_t wanted = kFirst; there < wanted;) {
    const HttpReply reply = http_get_range(access, url, there, wanted);
    if (reply.status != 200 && reply.status != 206) refuse(reply);
    const auto range = read_content_range(reply.header("content-range"));
    if (reply.status == 206 && (!range || range->first != there || (size > 0 && range->second != size)))
      throw invalid("{} sends other bytes than were asked for; the file may have changed, so try again",
                    shown_url(reply.url));
    std::ofstream out(file, there == 0 ? std::ios::binary | std::ios::trunc : std::ios::binary | std::ios::in);
    out.seekp(static_cast<std::streamoff>(there));
    out.write(reply.body.data(), std::ssize(reply.body));
    out.close();
    size = range ? range->second : reply.body.size();
    there += reply.body.size();
    std::error_code failed;
    fs::resize_file(file, size, failed);  // a hole takes no space
    if (!out || failed) throw no_resource("{} cannot be written", file.string());
    if (reply.body.empty()) return;  // an empty file
    wanted = std::min(size, std::max(needed(file, there), there));
  }
}

}  // namespace

fs::path download_heads(const HubReference& model, const fs::path& folder, const NeededHead& needed,
                        const DownloadOptions& options) {
  DownloadSession session(source_name(model), options);
  const RefusalHandler refuse = authorize(session, model);
  const Repository repository = list_repository(session, model, refuse, options);
  const FileChoice choice = choose_files(repository.files, model.choice, available_memory(), session.model());
  describe_choice(model, choice, options);
  options.note(fmt::format("{}: only headers are downloaded", session.model()));
  for (const RepoFile& file : choice.files) {
    const std::string url = file_url(model, repository.commit, file.path);
    const fs::path to = folder / file.path;
    if (file.path.ends_with(".gguf") || file.path.ends_with(".safetensors")) {
      download_head(url, to, needed, session.access(), refuse);
    } else if (!is_of_tokenizer(file.path)) {
      const HttpReply reply = http_get(session.access(), url);
      if (reply.status != 200) refuse(reply);
      create_folder(to.parent_path());
      write_whole_file(to, reply.body);
    }
  }
  return choice.main.empty() ? folder : folder / choice.main;
}

std::vector<StoredModel> stored_hub_models() {
  std::vector<StoredModel> models;
  const fs::path cache = hub_cache_folder();
  if (cache.empty()) return models;
  for (const std::string& name : cached_repos(cache)) {
    const CachedRepo repo(cache, name);
    const std::string main = repo.commit_of("main").value_or("");
    for (const std::string& commit : repo.commits()) {
      HubReference model{.repo = name, .revision = commit == main ? "main" : commit};
      const std::vector<RepoFile> files = repo.files(commit);
      // The first choice, then all that it lists as others.
      std::vector<std::string> choices;
      try {
        const FileChoice first = choose_files(files, "", UINT64_MAX, name);
        choices = first.others;
        choices.insert(choices.begin(), first.main.empty() ? "" : first.quant.empty() ? first.main : first.quant);
      } catch (const Error&) {
        // Several models, or none that Quire loads.
        for (const RepoFile& file : files) {
          if (file.path.ends_with(".gguf")) choices.push_back(file.path);
        }
      }
      for (const std::string& choice : choices) {
        model.choice = choice;
        try {
          const auto complete = complete_choice(repo, commit, model);
          if (complete) models.push_back(stored(model, repo, commit, *complete));
        } catch (const Error&) {
          // Not complete.
        }
      }
    }
  }
  return models;
}

namespace {

struct Removal {
  std::string commit;
  std::vector<RepoFile> files;
};

std::vector<Removal> removals_of(const HubReference& model, const CachedRepo& repo) {
  std::vector<Removal> removals;
  if (model.choice.empty() && model.revision == "main") {
    for (const std::string& commit : repo.commits()) removals.push_back({commit, repo.files(commit)});
    return removals;
  }
  const auto commit = repo.commit_of(model.revision);
  if (!commit) return removals;
  std::vector<RepoFile> files = repo.files(*commit);
  if (!model.choice.empty()) files = choose_files(files, model.choice, UINT64_MAX, source_name(model)).files;
  if (!files.empty()) removals.push_back({*commit, std::move(files)});
  return removals;
}

}  // namespace

std::optional<StoredModel> removable_hub_model(const HubReference& model) {
  const CachedRepo repo(existing_cache(), model.repo);
  std::error_code ignored;
  if (!fs::is_directory(repo.folder(), ignored)) return std::nullopt;
  StoredModel found{.name = source_name(model), .path = repo.folder()};
  std::set<std::string> blobs;
  for (const Removal& removal : removals_of(model, repo)) {
    for (const RepoFile& file : removal.files) {
      const fs::path path = repo.snapshot(removal.commit) / file.path;
      found.files.push_back(path);
      if (blobs.insert(fs::weakly_canonical(path, ignored).string()).second) found.bytes += file.size;
    }
  }
  // Downloads that were never finished.
  const bool is_whole = model.choice.empty() && model.revision == "main";
  if (is_whole) {
    for (fs::directory_iterator at(repo.folder() / "blobs", ignored), end; !ignored && at != end;
         at.increment(ignored)) {
      if (at->path().extension() != ".incomplete") continue;
      found.files.push_back(at->path());
      found.bytes += PartialFile(at->path().parent_path() / at->path().stem().stem()).allocated();
    }
  }
  return found.files.empty() && !is_whole ? std::nullopt : std::optional(found);
}

uint64_t remove_hub_model(const HubReference& model) {
  const CachedRepo repo(existing_cache(), model.repo);
  const std::vector<Removal> removals = removals_of(model, repo);
  if (removals.empty() && repo.commits().empty()) return repo.remove("", {});
  uint64_t freed = 0;
  for (const Removal& removal : removals) freed += repo.remove(removal.commit, removal.files);
  return freed;
}

}  // namespace quire
