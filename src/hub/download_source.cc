#include "hub/download_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/text/quote.h"

namespace quire {
namespace {

constexpr size_t kLongestPart = 96;  // of a repository's name; the hub's own limit
constexpr size_t kLongestRevision = 200;
constexpr size_t kLongestPath = 1024;
constexpr size_t kLongestUrl = 4096;
constexpr std::string_view kHubForm = "write hf:ORG/REPO, hf:ORG/REPO:QUANT or hf:ORG/REPO:FILE";
constexpr std::string_view kOllamaForm = "write ollama:NAME or ollama:NAME:TAG";

bool is_name_character(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

// The hub's rule: "--" separates the parts of a folder's name in the cache, so no part contains it.
bool is_repo_part(std::string_view part) {
  const auto is_edge = [](char c) { return c == '-' || c == '.'; };
  return !part.empty() && part.size() <= kLongestPart && std::ranges::all_of(part, is_name_character) &&
         !is_edge(part.front()) && !is_edge(part.back()) && part.find("--") == part.npos &&
         part.find("..") == part.npos;
}

bool is_revision(std::string_view text) {
  return text.size() <= kLongestRevision && is_path_inside(text) && !text.starts_with('-') &&
         text.find("..") == text.npos &&
         std::ranges::all_of(text, [](unsigned char c) { return is_name_character(c) || c == '/'; });
}

HubReference parse_hub_model(std::string_view text, std::string_view whole) {
  HubReference model;
  const size_t colon = std::min(text.find(':'), text.size());
  std::string_view repo = text.substr(0, colon);
  if (colon < text.size()) {
    model.choice = text.substr(colon + 1);
    if (!is_path_inside(model.choice))
      throw invalid("{}: {} is neither a quantization nor the path of a file in a repository", quote(whole),
                    quote(model.choice));
  }
  if (const size_t at = repo.find('@'); at != repo.npos) {
    model.revision = repo.substr(at + 1);
    if (!is_revision(model.revision)) throw invalid("{}: {} is not a revision", quote(whole), quote(model.revision));
    repo = repo.substr(0, at);
  }
  const size_t slash = repo.find('/');
  const bool is_good = slash == repo.npos ? is_repo_part(repo)
                                          : is_repo_part(repo.substr(0, slash)) && is_repo_part(repo.substr(slash + 1));
  if (!is_good) throw invalid("{}: {} is not the name of a repository; {}", quote(whole), quote(repo), kHubForm);
  model.repo = repo;
  return model;
}

// Registries' host names may have a port.
bool is_host(std::string_view host) {
  const size_t colon = std::min(host.find(':'), host.size());
  const std::string_view port = host.substr(std::min(colon + 1, host.size()));
  return is_repo_part(host.substr(0, colon)) && (colon == host.size() || !port.empty()) && port.size() <= 5 &&
         std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; });
}

OllamaReference parse_ollama_model(std::string_view text, std::string_view whole) {
  OllamaReference model;
  const size_t slashes = static_cast<size_t>(std::ranges::count(text, '/'));
  if (slashes == 2) {
    model.host = text.substr(0, text.find('/'));
    text.remove_prefix(model.host.size() + 1);
  }
  if (const size_t colon = text.find(':'); colon != text.npos) {
    model.tag = text.substr(colon + 1);
    text = text.substr(0, colon);
  }
  const size_t slash = text.find('/');
  const std::string_view space = slash == text.npos ? "library" : text.substr(0, slash);
  const std::string_view name = slash == text.npos ? text : text.substr(slash + 1);
  if (slashes > 2 || !is_host(model.host) || !is_repo_part(space) || !is_repo_part(name) || !is_repo_part(model.tag))
    throw invalid("{} is not the name of an Ollama model; {}", quote(whole), kOllamaForm);
  model.name = fmt::format("{}/{}", space, name);
  return model;
}

// hf: names of https://huggingface.co/ORG/REPO and https://huggingface.co/ORG/REPO/(resolve|blob)/REVISION/FILE.
std::optional<HubReference> read_hub_page(std::string_view url, std::string_view whole) {
  for (const std::string_view host : {"https://huggingface.co/", "https://hf.co/"}) {
    if (!url.starts_with(host)) continue;
    std::string_view rest = url.substr(host.size());
    rest = rest.substr(0, rest.find('?'));
    while (rest.ends_with('/')) rest.remove_suffix(1);
    const size_t org = rest.find('/');
    const size_t repo = org == rest.npos ? org : rest.find('/', org + 1);
    if (repo == rest.npos) return parse_hub_model(rest, whole);
    const std::string name(rest.substr(0, repo));
    rest.remove_prefix(repo + 1);
    for (const std::string_view kind : {"resolve/", "blob/"}) {
      if (!rest.starts_with(kind)) continue;
      const size_t end = rest.find('/', kind.size());
      if (end == rest.npos) break;
      return parse_hub_model(
          fmt::format("{}@{}:{}", name, rest.substr(kind.size(), end - kind.size()), rest.substr(end + 1)), whole);
    }
    throw invalid("{} is a page of the hub without a model; {}", quote(whole), kHubForm);
  }
  return std::nullopt;
}

UrlReference parse_url_model(std::string_view url) {
  UrlReference model;
  if (const size_t hash = url.find('#'); hash != url.npos) {
    const std::string_view fragment = url.substr(hash + 1);
    constexpr std::string_view kKey = "sha256=";
    if (!fragment.starts_with(kKey) || !is_hex(in_lower_case(fragment.substr(kKey.size())), 64))
      throw invalid("{}: the fragment must be #sha256= and 64 hexadecimal digits", quote(url));
    model.sha256 = in_lower_case(fragment.substr(kKey.size()));
    url = url.substr(0, hash);
  }
  if (url.size() > kLongestUrl || std::ranges::any_of(url, [](unsigned char c) { return c <= ' ' || c >= 0x7f; }))
    throw invalid("{} is not a URL", quote(url));
  const size_t authority = url.find("://") + 3;
  if (url.substr(authority, url.find('/', authority) - authority).find('@') != url.npos)
    throw invalid("a URL of a model must not contain a user or a password; they would show in lists and logs");
  model.url = url;
  return model;
}

}  // namespace

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

bool is_path_inside(std::string_view path) {
  if (path.empty() || path.size() > kLongestPath) return false;
  if (std::ranges::any_of(path, [](unsigned char c) { return c < ' ' || c == 0x7f; })) return false;
  while (true) {
    const size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (!is_plain_file_name(part) || part.size() > 255) return false;
    if (slash == path.npos) return true;
    path.remove_prefix(slash + 1);
  }
}

std::optional<DownloadSource> parse_download_source(std::string_view name) {
  const auto after = [&](std::string_view prefix) { return name.substr(prefix.size()); };
  if (name.starts_with("hf:")) return parse_hub_model(after("hf:"), name);
  if (name.starts_with("ollama:")) return parse_ollama_model(after("ollama:"), name);
  if (!name.starts_with("https://") && !name.starts_with("http://")) return std::nullopt;
  if (auto model = read_hub_page(name, name)) return *model;
  return parse_url_model(name);
}

std::string source_name(const DownloadSource& source) {
  if (const auto* hub = std::get_if<HubReference>(&source)) {
    return fmt::format("hf:{}{}{}", hub->repo, hub->revision == "main" ? "" : "@" + hub->revision,
                       hub->choice.empty() ? "" : ":" + hub->choice);
  }
  if (const auto* ollama = std::get_if<OllamaReference>(&source)) {
    const std::string host = ollama->host == OllamaReference{}.host ? "" : ollama->host + "/";
    const bool is_library = host.empty() && ollama->name.starts_with("library/");
    return fmt::format("ollama:{}{}:{}", host, is_library ? ollama->name.substr(8) : ollama->name, ollama->tag);
  }
  return std::get<UrlReference>(source).url;
}

}  // namespace quire
