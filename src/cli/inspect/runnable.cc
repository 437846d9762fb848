#include "cli/inspect/runnable.h"

#include <fmt/ranges.h>

#include <string>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "model/families.h"

namespace quire {
namespace {

std::string with_layer(std::string_view pattern, int layer) {
  std::string name(pattern);
  if (const size_t at = name.find("{}"); at != name.npos) name.replace(at, 2, std::to_string(layer));
  return name;
}

struct Wanted {
  std::string name;
  std::vector<int> shape;
};

std::vector<Wanted> wanted_tensors(const ModelConfig& c, const TensorNames& names) {
  std::vector<Wanted> wanted{{std::string(names.embedding), {c.vocab, c.hidden}},
                             {std::string(names.output_norm), {c.hidden}}};
  if (!c.tied_output) wanted.push_back({std::string(names.output), {c.vocab, c.hidden}});
  const int queries = c.heads * c.head_dim, keys = c.kv_heads * c.head_dim;
  for (int i = 0; i < c.layers; ++i) {
    const std::pair<std::string_view, std::vector<int>> layer[] = {
        {names.attention_norm, {c.hidden}}, {names.q, {queries, c.hidden}}, {names.k, {keys, c.hidden}},
        {names.v, {keys, c.hidden}},        {names.o, {c.hidden, queries}}, {names.ffn_norm, {c.hidden}},
        {names.gate, {c.ffn, c.hidden}},    {names.up, {c.ffn, c.hidden}},  {names.down, {c.hidden, c.ffn}},
    };
    for (const auto& [pattern, shape] : layer) wanted.push_back({with_layer(pattern, i), shape});
  }
  return wanted;
}

}  // namespace

ModelConfig read_model_config(const Checkpoint& checkpoint) {
  const Family& family = find_family(checkpoint);
  const ModelConfig config =
      checkpoint.gguf() ? family.from_gguf(*checkpoint.gguf()) : family.from_hf(*checkpoint.hf());
  validate(config, checkpoint.file());
  return config;
}

void check_tensors(const Checkpoint& checkpoint, const ModelConfig& config) {
  const Family& family = find_family(checkpoint);
  const TensorNames& names = checkpoint.gguf() ? *family.gguf_names : *family.hf_names;
  const bool quantized = checkpoint.hf() && checkpoint.hf()->config.has("quantization_config");

  std::unordered_set<std::string> known;
  for (const auto& [name, shape] : wanted_tensors(config, names)) {
    const TensorView* view = checkpoint.find_tensor(name);
    if (!view && quantized)
      throw unsupported("tensor {} is missing; config.json has a quantization_config, which Quire does not read", name);
    if (!view) throw invalid("tensor {} is missing", name);
    if (view->shape != std::vector<uint64_t>(shape.begin(), shape.end())) {
      throw invalid("tensor {} has shape [{}], expected [{}]", name, fmt::join(view->shape, ", "),
                    fmt::join(shape, ", "));
    }
    if (!info(view->type).loadable)
      throw unsupported("tensor {} has type {}, which Quire cannot load", name, quire::name(view->type));
    known.insert(name);
    if (shape.size() == 2) known.insert(name.substr(0, name.rfind('.')) + ".bias");
  }
  for (const std::string_view pattern : names.ignored) {
    for (int i = 0; i < config.layers; ++i) known.insert(with_layer(pattern, i));
  }
  if (config.tied_output) known.insert(std::string(names.output));
  for (const TensorView& view : checkpoint.tensors()) {
    if (!known.contains(view.name))
      throw unsupported("tensor {} is not part of a {} model as Quire knows it", view.name, config.architecture);
  }
}

}  // namespace quire
