#include "format/hf_config.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <system_error>

#include "base/files/mapped_file.h"
#include "base/text/quote.h"

namespace quire {
namespace {

constexpr size_t kMostBytes = size_t{64} << 20;  // the largest file that is read

std::optional<JsonField> read_if_present(const std::filesystem::path& path) {
  std::error_code unreadable;
  if (!std::filesystem::exists(path, unreadable)) return std::nullopt;
  return JsonField::read(path, kMostBytes);
}

// Python writes Infinity, which JSON does not have; null of the same length keeps the columns of error messages.
std::string without_infinities(std::string text) {
  constexpr std::string_view kInfinity = "Infinity", kNull = "null    ";
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (quoted && text[i] == '\\') ++i;  // skips an escaped quote
    if (!quoted && text.compare(i, kInfinity.size(), kInfinity) == 0) text.replace(i, kNull.size(), kNull);
  }
  return text;
}

// A number or a list of numbers; some files write a negative one for "none".
TokenIds token_ids(const JsonField& object, const char* key) {
  const auto value = object.find(key);
  if (!value) return {};
  TokenIds ids = value->json().is_array() ? value->as<TokenIds>() : TokenIds{value->as<TokenId>()};
  std::erase_if(ids, [](TokenId id) { return id < 0; });
  TokenIds unique;
  for (const TokenId id : ids) {
    if (std::ranges::find(unique, id) == unique.end()) unique.push_back(id);
  }
  return unique;
}

std::vector<SentenceModule> read_modules(const std::filesystem::path& directory) {
  std::vector<SentenceModule> modules;
  const auto list = read_if_present(directory / "modules.json");
  if (!list) return modules;
  constexpr size_t kMostModules = 64;
  for (const JsonField& entry : list->elements(kMostModules)) {
    SentenceModule module{.kind = entry.get<std::string>("type"), .folder = entry.get<std::string>("path")};
    module.kind.erase(0, module.kind.rfind('.') + 1);
    if (!module.folder.empty() && !is_plain_file_name(module.folder))
      throw entry.at("path").error("{} is not the name of a folder", quote(module.folder));
    if (!module.folder.empty()) module.config = read_if_present(directory / module.folder / "config.json");
    modules.push_back(std::move(module));
  }
  return modules;
}

}  // namespace

HfConfig HfConfig::of_file(const std::filesystem::path& config) {
  HfConfig files{.config = JsonField::parse(without_infinities(read_text_file(config, kMostBytes)), config.string()),
                 .generation = std::nullopt,
                 .tokenizer = std::nullopt,
                 .quantizer = std::nullopt,
                 .modules = {}};
  return files;
}

HfConfig HfConfig::open(const std::filesystem::path& directory) {
  return {of_file(directory / "config.json").config, read_if_present(directory / "generation_config.json"),
          read_if_present(directory / "tokenizer_config.json"), read_if_present(directory / "hf_quant_config.json"),
          read_modules(directory)};
}

EndTokens end_tokens(const HfConfig& config) {
  std::vector<JsonField> sources;  // the first one that has the key wins
  if (config.generation) sources.push_back(*config.generation);
  sources.push_back(config.config);
  if (const auto inner = config.config.find("text_config")) sources.push_back(*inner);
  EndTokens tokens;
  for (const JsonField& source : sources) {
    if (tokens.eos.empty()) tokens.eos = token_ids(source, "eos_token_id");
    if (const TokenIds bos = token_ids(source, "bos_token_id"); tokens.bos == kNoToken && !bos.empty()) {
      tokens.bos = bos.front();
    }
  }
  return tokens;
}

}  // namespace quire
