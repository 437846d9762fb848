#include "hub/choose_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "hub/download_source.h"

namespace quire {
namespace {

constexpr double kMemoryPerByte = 1.3;  // as deploy/quire.service advises for MemoryMax
constexpr size_t kMostListed = 24;
constexpr std::string_view kGguf = ".gguf";

std::string upper_case(std::string_view text) {
  std::string upper(text);
  for (char& c : upper) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return upper;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool are_digits(std::string_view text) { return !text.empty() && std::ranges::all_of(text, is_digit); }

// IQ3_XXS, Q4_K_M, TQ1_0, MXFP4_MOE, BF16: a type's letters, digits, then anything of a word.
bool is_quantization(std::string_view word) {
  for (const std::string_view letters : {"IQ", "TQ", "Q", "MXFP", "NVFP", "BF", "FP", "F"}) {
    if (!word.starts_with(letters) || word.size() == letters.size() || !is_digit(word[letters.size()])) continue;
    if (letters != "BF" && letters != "FP" && letters != "F") return true;
    return word.substr(letters.size()) == "16" || word.substr(letters.size()) == "32";
  }
  return false;
}

// A GGUF file, or the parts of a split one.
struct GgufModel {
  std::string name;             // the path without "-00001-of-00002.gguf"
  std::vector<RepoFile> parts;  // in order
  size_t count = 1;             // of parts that there should be
  std::string quant;

  bool is_complete() const { return parts.size() == count; }
  uint64_t bytes() const {
    return std::accumulate(parts.begin(), parts.end(), uint64_t{0},
                           [](uint64_t n, const auto& f) { return n + f.size; });
  }
};

struct SplitName {
  std::string_view stem;
  size_t part = 1, count = 1;
};

// "x-00002-of-00003" has the stem x.
SplitName read_split(std::string_view stem) {
  constexpr size_t kLength = std::string_view("-00002-of-00003").size();
  if (stem.size() <= kLength) return {stem};
  const std::string_view tail = stem.substr(stem.size() - kLength);
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || !are_digits(tail.substr(1, 5)) || !are_digits(tail.substr(10)))
    return {stem};
  return {stem.substr(0, stem.size() - kLength), std::stoul(std::string(tail.substr(1, 5))),
          std::stoul(std::string(tail.substr(10)))};
}

std::vector<GgufModel> gguf_models(std::span<const RepoFile> files) {
  std::map<std::pair<std::string, size_t>, std::map<size_t, RepoFile>> found;
  for (const RepoFile& file : files) {
    const std::string lower = in_lower_case(file.path);
    const std::string_view base = std::string_view(lower).substr(lower.rfind('/') + 1);
    // Projectors of images and statistics of calibration texts are GGUF files, too, but no models.
    if (!lower.ends_with(kGguf) || base.find("mmproj") != base.npos || base.find("imatrix") != base.npos) continue;
    const SplitName split = read_split(std::string_view(file.path).substr(0, file.path.size() - kGguf.size()));
    if (split.part < 1 || split.part > split.count) continue;
    found[{std::string(split.stem), split.count}].emplace(split.part, file);
  }
  std::vector<GgufModel> models;
  for (const auto& [key, parts] : found) {
    GgufModel model{.name = key.first, .parts = {}, .count = key.second, .quant = quantization_of(key.first)};
    for (const auto& [part, file] : parts) model.parts.push_back(file);
    models.push_back(std::move(model));
  }
  return models;
}

std::string shown_size(uint64_t bytes) {
  return bytes == 0 ? "size unknown" : fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
}

bool fits(const GgufModel& model, uint64_t memory) {
  return static_cast<double>(model.bytes()) * kMemoryPerByte <= static_cast<double>(memory);
}

std::string list_of(std::vector<std::string> names) {
  const size_t left = names.size() - std::min(names.size(), kMostListed);
  names.resize(names.size() - left);
  return fmt::format("{}{}", fmt::join(names, ", "), left ? fmt::format(" and {} more", left) : "");
}

// How each model can be asked for: its quantization if no other has it, or else its file.
std::vector<std::string> choices_of(std::span<const GgufModel> models) {
  std::map<std::string, int> uses;
  for (const GgufModel& model : models) ++uses[model.quant];
  std::vector<std::string> names;
  for (const GgufModel& model : models)
    names.push_back(model.quant.empty() || uses[model.quant] > 1 ? model.parts.front().path : model.quant);
  return names;
}

FileChoice choice_of(const GgufModel& model, std::string reason, std::span<const GgufModel> all) {
  FileChoice choice{.files = model.parts,
                    .main = model.parts.front().path,
                    .quant = model.quant,
                    .reason = std::move(reason),
                    .others = {}};
  for (const GgufModel& other : all) {
    if (&other != &model) choice.others.push_back(choices_of(all)[static_cast<size_t>(&other - all.data())]);
  }
  return choice;
}

void check_complete(const GgufModel& model, const std::string& name) {
  if (!model.is_complete())
    throw invalid("{}: {} is split into {} files, of which the repository has {}", name, quote(model.name), model.count,
                  model.parts.size());
}

FileChoice choose_named(std::span<const GgufModel> models, const std::string& wanted, const std::string& name) {
  std::vector<const GgufModel*> same;
  for (const GgufModel& model : models) {
    const bool is_file = std::ranges::any_of(model.parts, [&](const RepoFile& part) { return part.path == wanted; });
    if (is_file) {
      check_complete(model, name);
      return choice_of(model, "named", models);
    }
    if (model.quant == upper_case(wanted)) same.push_back(&model);
  }
  if (same.size() > 1) {
    std::vector<std::string> paths;
    for (const GgufModel* model : same) paths.push_back(model->parts.front().path);
    throw invalid("{}: {} files have the quantization {}; name one: {}", name, same.size(), upper_case(wanted),
                  list_of(paths));
  }
  if (same.empty()) {
    const std::vector<std::string> choices = choices_of(models);
    throw not_found("{}: the repository has neither a file nor a quantization called {}.{} It has {}", name,
                    quote(wanted), did_you_mean(upper_case(wanted), choices), list_of(choices));
  }
  check_complete(*same.front(), name);
  return choice_of(*same.front(), "named", models);
}

FileChoice choose_gguf(std::span<const GgufModel> models, uint64_t memory, const std::string& name) {
  const std::string choices = list_of(choices_of(models));
  if (models.size() == 1) {
    check_complete(models.front(), name);
    return choice_of(models.front(), "the only GGUF file", models);
  }
  const auto usual = std::ranges::find(models, "Q4_K_M", &GgufModel::quant);
  if (std::ranges::count(models, "Q4_K_M", &GgufModel::quant) > 1)
    throw invalid("{}: the repository has several models; name one of its files: {}", name, choices);
  if (usual != models.end() && usual->is_complete() && fits(*usual, memory))
    return choice_of(*usual, "the usual choice", models);
  const GgufModel *best = nullptr, *smallest = nullptr;
  for (const GgufModel& model : models) {
    if (!model.is_complete()) continue;
    if (!smallest || model.bytes() < smallest->bytes()) smallest = &model;
    if (fits(model, memory) && (!best || model.bytes() > best->bytes())) best = &model;
  }
  if (!smallest) throw invalid("{}: all GGUF files of the repository lack parts", name);
  if (!best) {
    throw no_resource(
        "{}: no file fits the {} of memory that are available; the smallest has {} and needs about {}. To download one "
        "all the same, name it: {}",
        name, shown_size(memory), shown_size(smallest->bytes()),
        shown_size(static_cast<uint64_t>(static_cast<double>(smallest->bytes()) * kMemoryPerByte)), choices);
  }
  return choice_of(*best,
                   fmt::format("the largest that fits the available memory, {}{}", shown_size(memory),
                               usual == models.end() ? "; there is no Q4_K_M" : "; Q4_K_M does not fit"),
                   models);
}

// What a model directory may consist of. Weights in other formats are left out.
bool is_small_file_of_directory(std::string_view path) {
  const size_t slash = path.rfind('/');
  // The modules of sentence-transformers are folders with a config.json, and some with weights.
  if (slash != path.npos) return are_digits(path.substr(0, path.find('_'))) && path.substr(slash + 1) == "config.json";
  return path.ends_with(".json") || path.ends_with(".jinja") || path == "tokenizer.model" || path == "merges.txt" ||
         path == "vocab.txt";
}

bool is_weight_of_directory(std::string_view path) {
  if (!path.ends_with(".safetensors")) return false;
  return path.find('/') == path.npos || are_digits(path.substr(0, path.find('_')));
}

FileChoice choose_safetensors(std::span<const RepoFile> files, const std::string& name) {
  FileChoice choice{
      .files = {}, .main = {}, .quant = "safetensors", .reason = "the weights as safetensors", .others = {}};
  bool has_config = false;
  std::vector<RepoFile> weights;
  for (const RepoFile& file : files) {
    has_config |= file.path == "config.json";
    if (is_small_file_of_directory(file.path)) choice.files.push_back(file);
    if (is_weight_of_directory(file.path)) weights.push_back(file);
  }
  // Mistral's repositories have the same weights a second time, in names of its own.
  const auto is_copy = [](const RepoFile& file) { return file.path.starts_with("consolidated"); };
  if (!std::ranges::all_of(weights, is_copy)) std::erase_if(weights, is_copy);
  if (weights.empty() || !has_config) {
    const bool has_pickles = std::ranges::any_of(files, [](const RepoFile& file) {
      return file.path.ends_with(".bin") || file.path.ends_with(".pth") || file.path.ends_with(".pt");
    });
    throw not_found("{}: the repository has neither a GGUF file nor {}{}", name,
                    weights.empty() ? "safetensors" : "a config.json next to its safetensors",
                    has_pickles ? "; it has weights as pickled Python, which Quire does not load" : "");
  }
  choice.files.insert(choice.files.end(), weights.begin(), weights.end());
  return choice;
}

}  // namespace

uint64_t FileChoice::bytes() const {
  return std::accumulate(files.begin(), files.end(), uint64_t{0}, [](uint64_t n, const auto& f) { return n + f.size; });
}

std::string quantization_of(std::string_view path) {
  const std::string upper = upper_case(path);
  std::string found;
  size_t begin = 0;
  while (begin <= upper.size()) {
    const size_t end = std::min(upper.find_first_of("-./", begin), upper.size());
    std::string_view word = std::string_view(upper).substr(begin, end - begin);
    // "model_Q4_K_M": the word may begin after an underscore.
    for (std::string_view rest = word; !rest.empty();) {
      if (is_quantization(rest)) {
        const bool is_dynamic = rest.size() == word.size() && begin >= 3 && upper.compare(begin - 3, 3, "UD-") == 0;
        found = (is_dynamic ? "UD-" : "") + std::string(rest);
        break;
      }
      const size_t underscore = rest.find('_');
      if (underscore == rest.npos) break;
      rest.remove_prefix(underscore + 1);
    }
    begin = end + 1;
  }
  return found;
}

FileChoice choose_files(std::span<const RepoFile> files, const std::string& choice, uint64_t memory,
                        const std::string& name) {
  const std::vector<GgufModel> models = gguf_models(files);
  if (choice == "safetensors" || (models.empty() && choice.empty())) return choose_safetensors(files, name);
  if (models.empty()) {
    throw not_found("{}: the repository has no GGUF files, so {} cannot be chosen; leave it out for its safetensors",
                    name, quote(choice));
  }
  return choice.empty() ? choose_gguf(models, memory, name) : choose_named(models, choice, name);
}

}  // namespace quire
