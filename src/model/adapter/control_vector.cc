#include "model/adapter/control_vector.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text/quote.h"
#include "format/gguf.h"
#include "model/quantized/module_tensors.h"

namespace quire {
namespace {

constexpr std::string_view kDirection = "direction.";

// The layer that a tensor is for. llama.cpp has none for layer 0, whose number stands for "no layer" there.
size_t layer_of(const TensorView& tensor, const std::string& file) {
  const std::string_view name = tensor.name;
  size_t layer = 0;
  const char* const end = name.data() + name.size();
  const bool named = name.starts_with(kDirection);
  const auto read = std::from_chars(name.data() + (named ? kDirection.size() : 0), end, layer);
  if (!named || read.ec != std::errc() || read.ptr != end || layer == 0)
    throw invalid("{}: tensor {} is no direction of a control vector; these are called direction.1, direction.2, …",
                  file, quote(name));
  return layer;
}

}  // namespace

ControlVectors::ControlVectors(const ModelConfig& config, int first, int last) : config_(config) {
  if (config.altup.streams > 0)
    throw unsupported("control vectors cannot be used with this model, whose layers have {} hidden states each",
                      config.altup.streams);
  for (size_t i = 0; i < config.layers.size(); ++i)
    if (!config.layers[i].joined) outputs_.push_back(i);
  const auto layers = static_cast<int>(outputs_.size());
  if (last == 0) last = layers - 1;
  if (first < 1 || last < first || last >= layers)
    throw invalid("--control-vector-layer-range {} {}: the model has the layers 1 to {}", first, last, layers - 1);
  first_ = static_cast<size_t>(first);
  last_ = static_cast<size_t>(last);
  directions_.resize(config.layers.size());
}

void ControlVectors::add(const std::string& path, float scale) {
  const Gguf gguf = Gguf::open(path);
  const std::string kind(gguf.get_or<std::string>("general.architecture", "controlvector"));
  if (kind != "controlvector")
    throw invalid("{} is no control vector: its general.architecture is {}, not \"controlvector\"", path, quote(kind));
  if (gguf.tensors().empty()) throw invalid("{} has no tensors", path);
  for (const TensorView& tensor : gguf.tensors()) {
    const size_t layer = layer_of(tensor, path);
    if (layer >= outputs_.size())
      throw invalid(
          "{}: {} is for a layer that the model does not have: its last one is {}; the control vector is of "
          "another model",
          path, quote(tensor.name), outputs_.size() - 1);
    if (tensor.type != TensorType::F32)
      throw unsupported("{}: {} has type {}; control vectors must have F32", path, quote(tensor.name),
                        name(tensor.type));
    if (tensor.shape.size() != 1 || std::cmp_not_equal(tensor.shape[0], config_.hidden))
      throw invalid(
          "{}: {} has shape {}, but the model's hidden states have {} numbers; the control vector is of "
          "another model",
          path, quote(tensor.name), shape_text(tensor.shape), config_.hidden);
    std::vector<float> values(tensor.shape[0]);
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    if (const auto bad = std::ranges::find_if(values, [](float x) { return !std::isfinite(x); }); bad != values.end())
      throw invalid("{}: {} has the number {}; the file is damaged", path, quote(tensor.name), *bad);
    if (layer < first_ || layer > last_) continue;
    std::vector<float>& sum = directions_[outputs_[layer]];
    sum.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) sum[i] += scale * values[i];
  }
}

size_t ControlVectors::bytes() const {
  size_t bytes = 0;
  for (const auto& direction : directions_) bytes += direction.size() * sizeof(float);
  return bytes;
}

std::string ControlVectors::identity() const {
  XXH3_state_t* const state = XXH3_createState();
  XXH3_128bits_reset(state);
  for (const std::vector<float>& direction : directions_) {
    const uint64_t size = direction.size();
    XXH3_128bits_update(state, &size, sizeof size);
    if (size > 0) XXH3_128bits_update(state, direction.data(), size * sizeof(float));
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace quire
