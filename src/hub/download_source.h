// Names of models that can be downloaded: hf:ORG/REPO, ollama:NAME, https://HOST/FILE.gguf.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace quire {

// A model of the Hugging Face hub: hf:ORG/REPO[@REVISION][:FILE|:QUANT].
struct HubReference {
  std::string repo;               // "ORG/REPO", or "REPO" of the hub's oldest models
  std::string revision = "main";  // a branch, a tag or a commit
  std::string choice = {};        // a file of the repository, a quantization such as Q4_K_M, or empty
};

// A model of an Ollama registry: ollama:[HOST/][NAMESPACE/]NAME[:TAG].
struct OllamaReference {
  std::string host = "registry.ollama.ai";  // with its port, if it has one
  std::string name;                         // "library/llama3.2"
  std::string tag = "latest";
};

// One GGUF file of any server.
struct UrlReference {
  std::string url;          // without the fragment
  std::string sha256 = {};  // of a fragment #sha256=HEX; empty: not known
};

using DownloadSource = std::variant<HubReference, OllamaReference, UrlReference>;

// nullopt: the name has none of these forms, so it is a path or a registered name. Throws Error (kInvalid) for a name of
// one of these forms that is malformed, or that would lead out of the cache's folders. Pages and files of huggingface.co
// are read as hf: names.
std::optional<DownloadSource> parse_download_source(std::string_view name);

// The name again: "hf:ORG/REPO:Q4_K_M".
std::string source_name(const DownloadSource& source);

// Whether the path of a file in a repository stays inside of it: relative, without empty parts, '.', '..', backslashes and
// control characters.
bool is_path_inside(std::string_view path);

// Whether the text is `digits` lower-case hexadecimal digits.
bool is_hex(std::string_view text, size_t digits);

std::string in_lower_case(std::string_view text);  // ASCII letters only

}  // namespace quire
