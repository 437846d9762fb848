#include "model/adapter/adapter_files.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text/quote.h"
#include "json/field.h"
#include "model/quantized/module_tensors.h"

namespace quire {
namespace {

// A rank beyond this is a damaged file: no matrix of a model is so small a part of another's.
constexpr uint64_t kMostRank = 1 << 16;

struct Endings {
  std::string_view down, up;
};
constexpr Endings kPeft{".lora_A.weight", ".lora_B.weight"}, kGguf{".weight.lora_a", ".weight.lora_b"};
constexpr std::string_view kPeftPrefix = "base_model.model.", kMagnitude = ".lora_magnitude_vector";

void check_tensor(const TensorView& t, const std::string& file) {
  if (t.type != TensorType::F32 && t.type != TensorType::F16 && t.type != TensorType::BF16)
    throw unsupported("{}: tensor {} has type {}; adapters must have F32, F16 or BF16", file, quote(t.name),
                      quire::name(t.type));
}

std::string adapted_module(std::string_view tensor, std::string_view ending, std::string_view prefix) {
  tensor.remove_suffix(ending.size());
  return std::string(tensor.starts_with(prefix) ? tensor.substr(prefix.size()) : tensor);
}

// The magnitudes of decomposed modules, which pair_tensors() left out.
void add_magnitudes(std::span<const TensorView> tensors, const std::string& file, std::vector<AdapterPair>& pairs) {
  for (const TensorView& t : tensors) {
    if (!t.name.ends_with(kMagnitude)) continue;
    check_tensor(t, file);
    const std::string module = adapted_module(t.name, kMagnitude, kPeftPrefix);
    const auto pair = std::ranges::find(pairs, module, &AdapterPair::module);
    if (pair == pairs.end()) throw invalid("{}: {} has magnitudes, but no matrices", file, quote(module));
    if (t.shape != std::vector<uint64_t>{pair->up->shape[0]})
      throw invalid("{}: tensor {} has shape {}; it must have a number for each of the {} outputs", file, quote(t.name),
                    shape_text(t.shape), pair->up->shape[0]);
    pair->magnitude = &t;
  }
}

// Pairs up the tensors. scale_of(module, rank).
std::vector<AdapterPair> pair_tensors(std::span<const TensorView> tensors, const std::string& file,
                                      const Endings& endings, std::string_view prefix,
                                      const std::function<float(const std::string& module, int rank)>& scale_of) {
  std::map<std::string, AdapterPair> pairs;
  for (const TensorView& t : tensors) {
    const std::string_view name = t.name;
    if (name.ends_with(kMagnitude)) continue;
    const bool is_down = name.ends_with(endings.down);
    if (!is_down && !name.ends_with(endings.up))
      throw unsupported("{}: tensor {} is no matrix of a LoRA adapter ({}, {}); Quire applies nothing else", file,
                        quote(name), endings.down.substr(1), endings.up.substr(1));
    check_tensor(t, file);
    if (t.shape.size() != 2 || t.shape[0] == 0 || t.shape[1] == 0 || t.shape[is_down ? 0 : 1] > kMostRank)
      throw invalid("{}: tensor {} has shape {}, which is no matrix of a LoRA adapter", file, quote(name),
                    shape_text(t.shape));
    const std::string module = adapted_module(name, endings.down, prefix);
    AdapterPair& pair = pairs.try_emplace(module, AdapterPair{module, nullptr, nullptr, 1}).first->second;
    (is_down ? pair.down : pair.up) = &t;
  }
  if (pairs.empty()) throw invalid("{} has no tensors", file);
  std::vector<AdapterPair> all;
  for (auto& [module, pair] : pairs) {
    if (!pair.down || !pair.up)
      throw invalid("{}: {} has {}, but not {}", file, quote(module), (pair.down ? endings.down : endings.up).substr(1),
                    (pair.down ? endings.up : endings.down).substr(1));
    if (pair.up->shape[1] != pair.down->shape[0])
      throw invalid("{}: {} has the shapes {} and {}, whose ranks differ", file, quote(module),
                    shape_text(pair.down->shape), shape_text(pair.up->shape));
    pair.scale = scale_of(module, pair.rank());
    if (!std::isfinite(pair.scale))
      throw invalid("{}: the scale of {} is {}; its alpha must be a usual number", file, quote(module), pair.scale);
    all.push_back(std::move(pair));
  }
  return all;
}

// What rank_pattern or alpha_pattern says of a module. PEFT takes keys for regular expressions of a module's name or its last
// parts; those of real adapters are plain names.
double of_module(const JsonField& config, std::string_view patterns, std::string_view fallback,
                 const std::string& module) {
  if (const auto all = config.find(patterns)) {
    for (const auto& [pattern, value] : all->members()) {
      const bool whole = pattern.starts_with('^');
      const std::string_view key = pattern.substr(whole ? 1 : 0);
      if (key.find_first_of("*+?[](){}|\\$^") != std::string_view::npos)
        throw value.error("Quire does not read regular expressions; name the modules");
      const bool ends_so = module.size() > key.size() && std::string_view(module).ends_with(key) &&
                           module[module.size() - key.size() - 1] == '.';
      if (module == key || (!whole && ends_so)) return value.number(0);
    }
  }
  return config.at(fallback).number(0);
}

bool is_set(const JsonField& config, std::string_view key) {
  const auto field = config.find(key);
  if (!field) return false;
  const Json& json = field->json();
  return json.is_boolean() ? json.get<bool>() : !json.empty();
}

// Settings with which the tensors mean something else than pairs for some linears.
void check_config(const JsonField& config) {
  if (const std::string type = config.get<std::string>("peft_type"); type != "LORA")
    throw config.at("peft_type").error("Quire applies adapters of type LORA only, not {}", quote(type));
  for (const std::string_view key :
       {"modules_to_save", "trainable_token_indices", "layer_replication", "lora_bias", "alora_invocation_tokens",
        "use_qalora", "use_bdlora", "target_parameters", "arrow_config", "kasa_config", "monteclora_config"}) {
    if (is_set(config, key)) throw config.at(key).error("Quire does not apply adapters with this setting; merge them");
  }
  if (const std::string bias = config.get_or<std::string>("bias", "none"); bias != "none")
    throw config.at("bias").error("Quire does not apply biases of adapters (none), only matrices, not {}", quote(bias));
  if (const auto init = config.find("init_lora_weights"); init && init->json().is_string()) {
    // With most others the model's own weights changed, too, before training (PiSSA, OLoRA, CorDA, LoftQ).
    const std::string& how = init->string();
    if (how != "gaussian" && how != "eva" && how != "orthogonal")
      throw init->error("{} may change the model's own weights; convert the adapter to plain LoRA with PEFT",
                        quote(how));
  }
}

}  // namespace

AdapterFiles AdapterFiles::open(const std::filesystem::path& path) {
  AdapterFiles files;
  files.file_ = path.string();
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) throw not_found("there is no adapter {}", quote(files.file_));
  if (std::filesystem::is_directory(path, ignored)) {
    files.read_peft(path);
  } else {
    files.read_gguf(path);
  }
  return files;
}

void AdapterFiles::read_peft(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::exists(folder / "adapter_config.json", ignored))
    throw not_found("{} is no adapter: it has no adapter_config.json; pass a directory of PEFT or a GGUF file", file_);
  const JsonField config = JsonField::read(folder / "adapter_config.json");
  check_config(config);
  const bool stabilised = config.get_or("use_rslora", false);
  if (!std::filesystem::exists(folder / "adapter_model.safetensors", ignored))
    throw not_found("{} has no adapter_model.safetensors; save the adapter with safe_serialization=True", file_);
  safetensors_ = Safetensors::open(folder / "adapter_model.safetensors");
  pairs_ = pair_tensors(
      safetensors_->tensors(), safetensors_->file(), kPeft, kPeftPrefix, [&](const std::string& module, int rank) {
        if (const double r = of_module(config, "rank_pattern", "r", module); r != rank)
          throw invalid("{}: the rank of {} is {}, but adapter_config.json says {}", file_, quote(module), rank, r);
        const double alpha = of_module(config, "alpha_pattern", "lora_alpha", module);
        return static_cast<float>(alpha / (stabilised ? std::sqrt(rank) : rank));
      });
  add_magnitudes(safetensors_->tensors(), safetensors_->file(), pairs_);
  const bool decomposed = is_set(config, "use_dora");
  for (const AdapterPair& pair : pairs_) {
    if (decomposed != (pair.magnitude != nullptr))
      throw invalid("{}: use_dora in adapter_config.json is {}, but {} has {}magnitudes (lora_magnitude_vector)", file_,
                    decomposed, quote(pair.module), pair.magnitude ? "" : "no ");
  }
}

void AdapterFiles::read_gguf(const std::filesystem::path& path) {
  gguf_ = Gguf::open(path);
  const auto text = [&](std::string_view key) { return std::string(gguf_->get_or<std::string>(key, "")); };
  if (text("general.type") != "adapter")
    throw invalid("{} is no adapter: its general.type is {}, not \"adapter\"", file_, quote(text("general.type")));
  if (text("adapter.type") != "lora")
    throw unsupported("{}: adapter.type is {}; Quire applies \"lora\" only", file_, quote(text("adapter.type")));
  for (const std::string_view key : gguf_->keys())
    if (key.starts_with("adapter.alora."))
      throw unsupported("{}: Quire does not apply activated LoRA ({})", file_, key);
  architecture_ = text("general.architecture");
  const auto alpha = gguf_->get_or<float>("adapter.lora.alpha", 0);
  // Without alpha, llama.cpp does not scale.
  pairs_ = pair_tensors(gguf_->tensors(), file_, kGguf, "", [alpha](const std::string&, int rank) {
    return alpha == 0 ? 1 : alpha / static_cast<float>(rank);
  });
}

}  // namespace quire
