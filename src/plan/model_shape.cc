// Shapes of models by name and by numbers, for plans without any file.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <string>

#include "base/error.h"
#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "model/synth.h"
#include "plan/planned_model.h"

namespace quire {
namespace {

struct NamedShape {
  SynthShape shape;
  bool gated = true;               // the MLP
  bool learned_positions = false;  // instead of rope
};

// Besides those of `quire synth`. Sources: GPT-3: arXiv 2005.14165, table 2.1. Llama 2: 2307.09288, with the sizes of its
// config.json. Llama 3: 2407.21783, table 3. Mistral 7B: 2310.06825. Mixtral: 2401.04088. Qwen2.5: 2412.15115.
constexpr NamedShape kShapes[] = {
    {{"gpt-3-175b", 96, 12288, 96, 96, 128, 49152, 50257, 2048, 10000, true}, false, true},
    {{"llama-2-7b", 32, 4096, 32, 32, 128, 11008, 32000, 4096, 10000, false}},
    {{"llama-2-13b", 40, 5120, 40, 40, 128, 13824, 32000, 4096, 10000, false}},
    {{"llama-2-70b", 80, 8192, 64, 8, 128, 28672, 32000, 4096, 10000, false}},
    {{"llama-3.1-70b", 80, 8192, 64, 8, 128, 28672, 128256, 131072, 500000, false}},
    {{"llama-3.1-405b", 126, 16384, 128, 8, 128, 53248, 128256, 131072, 500000, false}},
    {{"mistral-7b", 32, 4096, 32, 8, 128, 14336, 32000, 32768, 1000000, false}},
    {{"mixtral-8x7b", 32, 4096, 32, 8, 128, 14336, 32000, 32768, 1000000, false, 8, 2}},
    {{"qwen2.5-7b", 28, 3584, 28, 4, 128, 18944, 152064, 131072, 1000000, false}},
    {{"qwen2.5-32b", 64, 5120, 40, 8, 128, 27648, 152064, 131072, 1000000, false}},
};

struct ShapeKey {
  std::string_view name;
  int SynthShape::*number;
  int least, most;
};
constexpr ShapeKey kShapeKeys[] = {
    {"layers", &SynthShape::layers, 1, 1024},        {"hidden", &SynthShape::hidden, 1, 1 << 17},
    {"heads", &SynthShape::heads, 1, 1 << 13},       {"kv-heads", &SynthShape::kv_heads, 1, 1 << 13},
    {"head-dim", &SynthShape::head_dim, 1, 1 << 13}, {"ffn", &SynthShape::ffn, 1, 1 << 20},
    {"vocab", &SynthShape::vocab, 1, 1 << 20},       {"context", &SynthShape::context, 1, 1 << 27},
    {"experts", &SynthShape::experts, 0, 1024},      {"experts-used", &SynthShape::experts_used, 0, 1024},
    {"window", &SynthShape::window, 0, 1 << 27},
};
constexpr std::string_view kGated = "gated", kTied = "tied";

std::string key_names() {
  std::vector<std::string> names;
  for (const ShapeKey& key : kShapeKeys) names.emplace_back(key.name);
  names.insert(names.end(), {std::string(kGated), std::string(kTied)});
  return fmt::format("{}", fmt::join(names, ", "));
}

NamedShape shape_named(std::string_view name) {
  for (const SynthShape& shape : synth_shapes()) {
    if (shape.name == name) return {shape};
  }
  for (const NamedShape& shape : kShapes) {
    if (shape.shape.name == name) return shape;
  }
  const auto names = shape_names();
  throw invalid("{} is not the name of a shape.{} Known: {}; or give numbers, as layers=32,hidden=4096,heads=32",
                quote(std::string(name)),
                did_you_mean(std::string(name), std::vector<std::string>(names.begin(), names.end())),
                fmt::join(names, ", "));
}

bool parse_switch(std::string_view key, std::string_view value) {
  if (value == "yes" || value == "no") return value == "yes";
  throw invalid("{} must be yes or no, not {}", key, quote(std::string(value)));
}

void set_number(SynthShape& shape, std::string_view name, std::string_view value) {
  const auto key = std::ranges::find(kShapeKeys, name, &ShapeKey::name);
  if (key == std::end(kShapeKeys))
    throw invalid("{} is not a number of a shape; known: {}", quote(std::string(name)), key_names());
  int number = 0;
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  const bool leads = value.size() > 1 && value.front() == '0';
  if (error == std::errc::invalid_argument || stop != end || leads)
    throw invalid("{} must be a whole number, not {}", name, quote(std::string(value)));
  if (error != std::errc() || number < key->least || number > key->most)
    throw invalid("{} must be between {} and {}, not {}", name, key->least, key->most, value);
  shape.*key->number = number;
}

// What was not given follows from the rest.
void fill_shape(SynthShape& s) {
  for (const auto& [name, number] : {std::pair{"layers", s.layers}, {"hidden", s.hidden}, {"heads", s.heads}}) {
    if (number == 0) throw invalid("a shape needs {}; give it as {}=NUMBER", name, name);
  }
  if (s.kv_heads == 0) s.kv_heads = s.heads;
  if (s.head_dim == 0) {
    if (s.hidden % s.heads != 0)
      throw invalid("hidden {} is not a multiple of heads {}; give head-dim", s.hidden, s.heads);
    s.head_dim = s.hidden / s.heads;
  }
  if (s.ffn == 0) s.ffn = 4 * s.hidden;
  if (s.experts > 0 && (s.experts_used < 1 || s.experts_used > s.experts))
    throw invalid("experts-used must be between 1 and experts ({}), not {}", s.experts, s.experts_used);
}

}  // namespace

std::vector<std::string_view> shape_names() {
  std::vector<std::string_view> names;
  for (const SynthShape& shape : synth_shapes()) names.push_back(shape.name);
  for (const NamedShape& shape : kShapes) names.push_back(shape.shape.name);
  return names;
}

ModelConfig parse_shape_config(std::string_view text) {
  NamedShape named{{"", 0, 0, 0, 0, 0, 0, 32000, 4096, 10000, false}};
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) {
      if (begin > 0) throw invalid("{} must have the form KEY=NUMBER", quote(std::string(part)));
      named = shape_named(part);
    } else if (const std::string_view key = part.substr(0, equals), value = part.substr(equals + 1); key == kGated) {
      named.gated = parse_switch(key, value);
    } else if (key == kTied) {
      named.shape.tied = parse_switch(key, value);
    } else {
      set_number(named.shape, key, value);
    }
    begin = end + 1;
  }
  fill_shape(named.shape);
  ModelConfig config = synth_config(named.shape);
  for (LayerSpec& layer : config.layers) {
    if (auto* mlp = std::get_if<Mlp>(&layer.ffn)) mlp->gated = named.gated;
    if (auto* moe = std::get_if<Moe>(&layer.ffn)) moe->gated = named.gated;
    if (named.learned_positions) std::get<Attention>(layer.mixer).rope = -1;
  }
  if (named.learned_positions) {
    config.learned_positions = true;
    config.ropes.clear();
  }
  validate(config, "the shape");
  return config;
}

}  // namespace quire
