// A loaded model in Ollama's terms, under each of its names.
#include <fmt/chrono.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.h"
#include "server/endpoints/ollama.h"

namespace quire {
namespace {

constexpr std::string_view kNever = "2318-01-01T00:00:00Z";  // as Ollama writes it for models that stay

// Ollama's names have a tag.
std::string with_tag(const std::string& name) {
  const size_t slash = name.rfind('/');
  const bool tagged = name.find(':', slash == name.npos ? 0 : slash) != name.npos;
  return tagged ? name : name + ":latest";
}

std::string size_name(uint64_t parameters) {
  const auto number = static_cast<double>(parameters);
  if (number >= 1e9) return fmt::format("{:.1f}B", number / 1e9);
  return number >= 1e6 ? fmt::format("{:.2f}M", number / 1e6) : fmt::format("{:.2f}K", number / 1e3);
}

Json details_json(const ModelInfo& info) {
  return {{"parent_model", ""},
          {"format", std::filesystem::is_directory(info.name) ? "safetensors" : "gguf"},
          {"family", info.architecture},
          {"families", Json::array({info.architecture})},
          {"parameter_size", size_name(info.parameters)},
          {"quantization_level", info.quantization}};
}

std::string loaded_text(const OllamaModel& model) {
  return fmt::format("{:%FT%TZ}", fmt::gmtime(static_cast<std::time_t>(model.loaded)));
}

Json capabilities_json(const OllamaModel& model) {
  Json all = Json::array({"completion"});
  if (!model.chat_template.empty()) all.push_back("tools");
  if (model.thinks) all.push_back("thinking");
  if (model.infills) all.push_back("insert");
  return all;
}

// Clients show twelve digits of a model's hash, and remember what a model can do by it. Hashing gigabytes takes too long,
// so this is a hash of what they are told.
std::string digest(const OllamaModel& model) {
  const ModelInfo& info = model.info;
  const std::string text =
      fmt::format("{} {} {} {} {} {}{}", info.name, info.architecture, info.quantization, info.parameters,
                  info.weight_bytes, capabilities_json(model).dump(), model.chat_template);
  std::array<unsigned char, 32> bytes{};
  if (EVP_Digest(text.data(), text.size(), bytes.data(), nullptr, EVP_sha256(), nullptr) != 1) {
    throw no_resource("SHA-256 failed");
  }
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

// What both lists say about each name.
Json listed_json(const OllamaModel& model, const std::string& name) {
  return {{"name", with_tag(name)},
          {"model", with_tag(name)},
          {"size", model.info.weight_bytes},
          {"digest", digest(model)},
          {"details", details_json(model.info)}};
}

// Lines of a Modelfile.
std::string parameters_text(const SamplingDefaults& defaults) {
  std::string text;
  const auto add = [&](std::string_view name, const auto& value) {
    if (value) text += fmt::format("{}{} {}", text.empty() ? "" : "\n", name, *value);
  };
  add("temperature", defaults.temperature);
  add("top_k", defaults.top_k);
  add("top_p", defaults.top_p);
  add("min_p", defaults.min_p);
  add("repeat_penalty", defaults.repetition_penalty);
  return text;
}

}  // namespace

void add_ollama_tags(const OllamaModel& model, Json& models) {
  for (const std::string& name : model.names) {
    Json& listed = models.emplace_back(listed_json(model, name));
    listed["modified_at"] = loaded_text(model);
    listed["capabilities"] = capabilities_json(model);
  }
}

void add_ollama_ps(const OllamaModel& model, Json& models) {
  for (const std::string& name : model.names) {
    Json& listed = models.emplace_back(listed_json(model, name));
    listed["expires_at"] = kNever;
    listed["size_vram"] = 0;
    listed["context_length"] = model.info.max_model_len;
  }
}

Json ollama_show_json(const OllamaModel& model) {
  const ModelInfo& info = model.info;
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", info.architecture, name); };
  return {{"modelfile", ""},
          {"parameters", parameters_text(info.sampling_defaults)},
          {"template", model.chat_template},
          {"details", details_json(info)},
          {"model_info",
           {{"general.architecture", info.architecture},
            {"general.parameter_count", info.parameters},
            {key("context_length"), info.max_model_len},
            {key("embedding_length"), info.hidden},
            {key("block_count"), info.layers},
            {key("attention.head_count"), info.heads},
            {key("attention.head_count_kv"), info.kv_heads}}},
          {"capabilities", capabilities_json(model)},
          {"modified_at", loaded_text(model)}};
}

}  // namespace quire
