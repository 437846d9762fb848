#include "cli/inspect/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/cpu.h"
#include "base/error.h"
#include "cli/memory/memory_table.h"
#include "cli/memory/request_memory.h"
#include "engine/dtype_names.h"
#include "engine/memory_plan.h"
#include "engine/runtime.h"
#include "model/checkpoint.h"
#include "model/families.h"
#include "model/model_text.h"
#include "model/quantized/quantization.h"
#include "ops/cache_memory.h"
#include "text/tokenizer/data.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// ---- files

uint64_t file_bytes(const fs::path& path) {
  std::error_code ignored;
  uint64_t total = 0;
  const auto add = [&](const fs::path& p) {
    const auto size = fs::file_size(p, ignored);
    if (!ignored) total += size;
  };
  const fs::path folder = fs::is_directory(path, ignored) ? path : path.parent_path();
  if (folder == path || path.extension() == ".json") {
    for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, ignored)) {
      if (entry.path().extension() == ".safetensors") add(entry.path());
    }
    return total;
  }
  const std::string name = path.filename().string();
  constexpr size_t kTail = std::string_view("-00001-of-00009.gguf").size();
  if (name.size() < kTail || name.compare(name.size() - kTail + 6, 4, "-of-") != 0) {
    add(path);
    return total;
  }
  const std::string stem = name.substr(0, name.size() - kTail), of = name.substr(name.size() - kTail + 6);
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, ignored)) {
    const std::string other = entry.path().filename().string();
    if (other.size() == name.size() && other.starts_with(stem) && other.ends_with(of)) add(entry.path());
  }
  return total;
}

// ---- metadata

template <class T>
ordered_json array_json(const Gguf& gguf, std::string_view key) {
  ordered_json json = ordered_json::array();
  for (const T value : gguf.numbers<T>(key)) json.push_back(value);
  return json;
}

ordered_json value_json(const Gguf& gguf, std::string_view key, const GgufValue& value, size_t longest_array) {
  switch (value.type) {
    case GgufType::BOOL:
      return gguf.get<bool>(key);
    case GgufType::STRING:
      return gguf.get<std::string>(key);
    case GgufType::F32:
    case GgufType::F64:
      return gguf.get<double>(key);
    case GgufType::U64:
      return gguf.get<uint64_t>(key);
    case GgufType::ARRAY:
      break;
    default:
      return gguf.get<int64_t>(key);
  }
  if (value.count > longest_array || value.element == GgufType::ARRAY) {
    return {{"array_of", std::string(name(value.element))}, {"count", value.count}};
  }
  switch (value.element) {
    case GgufType::BOOL:
      return array_json<bool>(gguf, key);
    case GgufType::F32:
    case GgufType::F64:
      return array_json<double>(gguf, key);
    case GgufType::U64:
      return array_json<uint64_t>(gguf, key);
    case GgufType::STRING: {
      ordered_json json = ordered_json::array();
      for (const std::string_view text : gguf.strings(key)) json.push_back(std::string(text));
      return json;
    }
    default:
      return array_json<int64_t>(gguf, key);
  }
}

ordered_json metadata(const Gguf& gguf, size_t longest_array) {
  ordered_json json = ordered_json::object();
  for (const std::string_view key : gguf.keys())
    json[std::string(key)] = value_json(gguf, key, *gguf.find(key), longest_array);
  return json;
}

// ---- sizes, under the names that most files use

constexpr const char* kSizes[] = {"layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "context"};

ordered_json sizes(const Gguf& gguf) {
  constexpr const char* kKeys[] = {
      "block_count",          "embedding_length",    "attention.head_count", "attention.head_count_kv",
      "attention.key_length", "feed_forward_length", "vocab_size",           "context_length"};
  ordered_json json = ordered_json::object();
  const auto architecture = gguf.get_or<std::string>("general.architecture", "");
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    const std::string key = architecture + "." + kKeys[i];
    const GgufValue* value = gguf.find(key);
    if (value && value->type != GgufType::ARRAY && value->type != GgufType::STRING)
      json[kSizes[i]] = value_json(gguf, key, *value, 0);
  }
  if (const GgufValue* tokens = gguf.find("tokenizer.ggml.tokens"); tokens && !json.contains("vocab"))
    json["vocab"] = tokens->count;
  return json;
}

ordered_json sizes(const HfConfig& hf) {
  static const std::vector<std::string_view> kKeys[] = {{"num_hidden_layers", "n_layer", "num_layers"},
                                                        {"hidden_size", "n_embd", "d_model"},
                                                        {"num_attention_heads", "n_head"},
                                                        {"num_key_value_heads", "num_kv_heads"},
                                                        {"head_dim"},
                                                        {"intermediate_size", "ffn_hidden_size", "n_inner"},
                                                        {"vocab_size"},
                                                        {"max_position_embeddings", "n_positions"}};
  ordered_json json = ordered_json::object();
  const auto text = hf.config.find("text_config");
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    for (const std::string_view key : kKeys[i]) {
      for (const Json* object : {&hf.config.json(), text ? &text->json() : nullptr}) {
        if (!object || !object->is_object() || json.contains(kSizes[i])) continue;
        const auto found = object->find(key);
        if (found != object->end() && found->is_number_integer()) json[kSizes[i]] = *found;
      }
    }
  }
  return json;
}

ordered_json sizes(const ModelConfig& c) {
  const auto a = first_attention(c);
  const int values[] = {static_cast<int>(c.layers.size()),
                        c.hidden,
                        a ? a->heads : 0,
                        a ? a->kv_heads : 0,
                        a ? a->key_dim : 0,
                        widest_ffn(c),
                        c.vocab,
                        c.max_positions};
  ordered_json json;
  for (size_t i = 0; i < std::size(kSizes); ++i) json[kSizes[i]] = values[i];
  return json;
}

// The widest sliding window, and the number of layers that have one.
std::pair<int, int> sliding_layers(const ModelConfig& c) {
  int widest = 0, layers = 0;
  for (const LayerSpec& layer : c.layers) {
    const auto a = attention_shape(layer);
    if (!a || a->window == 0) continue;
    widest = std::max(widest, a->window);
    ++layers;
  }
  return {widest, layers};
}

ordered_json rope(const RopeConfig& r) {
  constexpr const char* kScalings[] = {"none", "linear", "llama3", "yarn", "longrope", "dynamic", "proportional"};
  ordered_json json{{"pairs", r.kind == RopeKind::kHalves       ? "halves"
                              : r.kind == RopeKind::kNeighbours ? "neighbours"
                                                                : "none"},
                    {"dim", r.dim},
                    {"theta", r.theta},
                    {"scaling", kScalings[static_cast<size_t>(r.scaling)]}};
  if (r.scaling != RopeConfig::Scaling::kNone) {
    json["factor"] = r.factor;
    if (r.original_positions > 0) json["original_context"] = r.original_positions;
  }
  if (!r.frequency_divisors.empty()) json["frequency_divisors"] = r.frequency_divisors.size();
  return json;
}

// ---- tensors

uint64_t elements(const TensorView& view) {
  uint64_t n = 1;
  for (const uint64_t d : view.shape) n *= d;  // the reader has checked the product
  return n;
}

void add_tensors(std::span<const TensorView> tensors, ordered_json& report) {
  struct Sum {
    uint64_t tensors = 0, elements = 0, bytes = 0;
  };
  std::map<TensorType, Sum> sums;
  ordered_json list = ordered_json::array();
  uint64_t parameters = 0;
  for (const TensorView& view : tensors) {
    Sum& sum = sums[view.type];
    ++sum.tensors;
    sum.elements += elements(view);
    sum.bytes += view.bytes.size();
    if (view.name != "rope_freqs.weight") parameters += elements(view);
    list.push_back({{"name", view.name},
                    {"type", std::string(name(view.type))},
                    {"shape", view.shape},
                    {"bytes", view.bytes.size()}});
  }
  std::vector<std::pair<TensorType, Sum>> sorted(sums.begin(), sums.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  report["parameters"] = parameters;
  report["tensor_types"] = ordered_json::array();
  for (const auto& [type, sum] : sorted) {
    report["tensor_types"].push_back({{"type", std::string(name(type))},
                                      {"tensors", sum.tensors},
                                      {"elements", sum.elements},
                                      {"bytes", sum.bytes}});
  }
  report["tensors"] = std::move(list);
}

// ---- tokenizer and template

struct TextPart {
  ModelText text;
  std::string problem;  // why the tokenizer or template cannot be used; empty: both can
};
TextPart add_text(const Checkpoint& checkpoint, ordered_json& report) {
  TextPart part;
  report["tokenizer"] = nullptr;
  report["chat_template"] = nullptr;
  const Gguf* gguf = checkpoint.gguf();
  const auto gguf_text = [&](const char* key) { return gguf ? gguf->get_or<std::string>(key, "") : std::string(); };
  ordered_json& out = report["tokenizer"];
  try {
    if (gguf && gguf->has("tokenizer.ggml.model")) {
      out["kind"] = gguf_text("tokenizer.ggml.model");
      if (const std::string pre = gguf_text("tokenizer.ggml.pre"); !pre.empty()) out["pre"] = pre;
    }
    part.text = load_model_text(checkpoint);
    const ModelText& text = part.text;
    if (text.tokenizer) {
      const Tokenizer& t = *text.tokenizer;
      if (!gguf) out["kind"] = std::string(t.data().model_kind());
      out["vocab_size"] = t.vocab_size();
      if (!t.warnings().empty()) out["warnings"] = t.warnings();
      const auto token = [&](TokenId id) { return ordered_json{{"id", id}, {"text", std::string(t.token_text(id))}}; };
      const std::pair<const char*, std::optional<TokenId>> special[] = {
          {"bos", t.bos()}, {"eos", t.eos()}, {"unk", t.unk()}, {"pad", t.pad()}, {"eot", t.eot()}, {"eom", t.eom()}};
      out["special_tokens"] = ordered_json::object();
      for (const auto& [what, id] : special) {
        if (id) out["special_tokens"][what] = token(*id);
      }
      out["adds_bos"] = t.adds_bos();
      out["adds_eos"] = t.adds_eos();
      out["end_of_generation"] = ordered_json::array();
      for (const TokenId id : t.end_of_generation()) out["end_of_generation"].push_back(token(id));
    }
    if (text.template_source) {
      report["chat_template"] = {{"bytes", text.template_source->size()}};
      ChatTemplate::parse(*text.template_source, checkpoint.file() + ": chat template");
    }
  } catch (const Error& e) {
    report[report["chat_template"].is_null() ? "tokenizer" : "chat_template"]["error"] = e.what();
    part.problem = e.what();
  }
  return part;
}

// ---- memory

// The sizes of the cache, whether the model runs or not.
ordered_json memory(const ModelConfig& c) {
  const CacheLayout layout = cache_layout(c, KvType::kBf16);
  ordered_json of_length = ordered_json::object();
  for (const int tokens : {4096, 32768, 131072}) of_length[std::to_string(tokens)] = layout.sequence_bytes(tokens);
  ordered_json of_type = ordered_json::object();
  for (const auto& [type, name] : kKvTypeNames) of_type[std::string(name)] = cache_layout(c, type).token_bytes();
  return {{"weight_bytes", nullptr},
          {"kv_cache_dtype", "bf16"},
          {"kv_bytes_per_token", layout.token_bytes()},
          {"kv_bytes_per_token_by_dtype", std::move(of_type)},
          {"kv_bytes_per_sequence", layout.state_bytes()},
          {"kv_bytes_at", std::move(of_length)},
          {"available_bytes", available_memory()},
          {"plan", nullptr},
          {"too_little", nullptr}};
}

// Adds the plan of `quire serve` with its default flags to memory(), or why the model does not fit.
void add_plan(const ModelFacts& facts, const fs::path& path, ordered_json& memory) {
  memory["weight_bytes"] = facts.weights.bytes;
  EngineOptions options;
  options.model = path.string();
  ServerOptions server;
  reserve_request_memory(0, server, options);
  try {
    memory["plan"] = memory_json(plan_memory(facts, options, this_machine(options)));
  } catch (const Error& e) {
    memory["too_little"] = e.what();
  }
}

// The method of config.json; null: the weights are not quantized.
ordered_json quantization(const HfConfig& hf) {
  const auto found = read_quantization(hf);
  return found ? ordered_json(found->method) : ordered_json();
}

// What a model for embeddings or a classifier makes of a prompt.
ordered_json pooling(const ModelConfig& c) {
  static constexpr const char* kNames[] = {"mean", "mean", "last", "cls"};  // by Pooling; kNone: the default
  return {{"tokens", kNames[static_cast<size_t>(c.pooled.pooling)]},
          {"labels", c.pooled.labels},
          {"size", pooled_size(c)},
          {"generates", c.has_logits}};
}

// ---- reports

ordered_json of_checkpoint(const fs::path& path, size_t longest_array) {
  const Checkpoint checkpoint = Checkpoint::open(path);
  const Gguf* gguf = checkpoint.gguf();
  ordered_json report{{"file", path.string()}};
  report["format"] = gguf ? fmt::format("GGUF version {}", gguf->version()) : "Hugging Face directory";
  if (gguf) {
    report["name"] = gguf->get_or<std::string>("general.name", path.stem().string());
    report["architecture"] = gguf->get_or<std::string>("general.architecture", "");
  } else {
    const JsonField& config = checkpoint.hf()->config;
    const auto folder = (path.has_filename() ? path : path.parent_path()).filename().string();
    const auto names = config.optional<std::vector<std::string>>("architectures").value_or(std::vector<std::string>{});
    report["name"] = config.get_or<std::string>("_name_or_path", "");
    if (report["name"] == "") report["name"] = folder;
    report["architecture"] = names.empty() ? config.get_or<std::string>("model_type", "") : names.front();
  }
  report["parameters"] = 0;
  report["file_bytes"] = file_bytes(path);
  report["sizes"] = gguf ? sizes(*gguf) : sizes(*checkpoint.hf());
  report["rope"] = nullptr;
  report["sliding_window"] = nullptr;
  report["pooling"] = nullptr;
  report["quantization"] = nullptr;
  report["tensor_types"] = nullptr;
  const TextPart text = add_text(checkpoint, report);
  report["memory"] = nullptr;
  report["runs"] = {{"ok", false}, {"why_not", nullptr}};
  std::optional<ModelFacts> facts;
  try {
    if (!gguf) report["quantization"] = quantization(*checkpoint.hf());
    const ModelConfig config = read_model_config(checkpoint);
    if (!config.warnings.empty()) report["warnings"] = config.warnings;
    report["sizes"] = sizes(config);
    if (!config.ropes.empty()) report["rope"] = rope(config.ropes[0]);
    if (const auto [tokens, layers] = sliding_layers(config); layers > 0)
      report["sliding_window"] = {{"tokens", tokens}, {"layers", layers}};
    if (config.pooled.pooling != Pooling::kNone || !config.has_logits) report["pooling"] = pooling(config);
    report["memory"] = memory(config);
    // As loading does, in its order.
    facts = read_model_facts(checkpoint, {});
    add_plan(*facts, path, report["memory"]);
    if (!text.problem.empty()) throw unsupported("{}", text.problem);
    check_vocabulary(checkpoint, text.text, config);
    report["runs"]["ok"] = true;
  } catch (const Error& e) {
    report["runs"]["why_not"] = e.what();
  }
  report["metadata"] = gguf ? metadata(*gguf, longest_array) : ordered_json(checkpoint.hf()->config.json());
  add_tensors(checkpoint.tensors(), report);
  checkpoint.check_unchanged();
  if (facts)
    report["parameters"] = facts->weights.parameters;  // those of a quantized model are not its tensors' elements
  return report;
}

ordered_json of_safetensors(const fs::path& path) {
  const Safetensors file = Safetensors::open(path);
  ordered_json report{
      {"file", path.string()}, {"format", "safetensors"}, {"name", path.stem().string()}, {"architecture", ""}};
  report["parameters"] = 0;
  report["file_bytes"] = file_bytes(path);
  for (const char* unknown : {"sizes", "rope", "sliding_window", "pooling", "quantization", "tensor_types", "tokenizer",
                              "chat_template", "memory"})
    report[unknown] = nullptr;
  std::error_code ignored;
  const bool has_config = fs::exists(path.parent_path() / "config.json", ignored);
  report["runs"] = {{"ok", false},
                    {"why_not", has_config ? "the file has weights only; pass its directory, which has a config.json"
                                           : "the file has weights only, and there is no config.json next to it"}};
  report["metadata"] = file.metadata();
  add_tensors(file.tensors(), report);
  return report;
}

}  // namespace

ordered_json inspect(const fs::path& path, size_t longest_array) {
  const bool weights_alone = path.extension() == ".safetensors" || path.extension() == ".json";
  std::error_code ignored;
  return weights_alone && !fs::is_directory(path, ignored) ? of_safetensors(path) : of_checkpoint(path, longest_array);
}

}  // namespace quire
