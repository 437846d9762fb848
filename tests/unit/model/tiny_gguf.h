// A small GGUF file, for tests that change something in it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "unit/format/gguf_bytes.h"

namespace quire::testing {

inline constexpr uint32_t kF32 = 0, kF16 = 1, kQ8_0 = 8, kI32 = 26;  // ggml's type ids

struct TensorSpec {
  std::string name;
  std::vector<uint64_t> dimensions;  // innermost first
  uint32_t type = kF32;

  size_t bytes() const {
    size_t elements = 1;
    for (const uint64_t d : dimensions) elements *= d;
    return type == kQ8_0 ? elements / 32 * 34 : type == kF16 ? elements * 2 : elements * 4;
  }
};

// A Llama of one layer: hidden size 32, one head, feed-forward size 64, 8 tokens, tied output.
struct TinyGguf {
  using Value = std::variant<std::string, uint32_t, float, bool>;

  std::map<std::string, Value> keys = {{"general.architecture", "llama"},
                                       {"llama.block_count", 1u},
                                       {"llama.embedding_length", 32u},
                                       {"llama.attention.head_count", 1u},
                                       {"llama.feed_forward_length", 64u},
                                       {"llama.context_length", 64u},
                                       {"llama.attention.layer_norm_rms_epsilon", 1e-5f}};
  std::vector<TensorSpec> tensors = {
      {"token_embd.weight", {32, 8}},         {"output_norm.weight", {32}},       {"blk.0.attn_norm.weight", {32}},
      {"blk.0.attn_q.weight", {32, 32}},      {"blk.0.attn_k.weight", {32, 32}},  {"blk.0.attn_v.weight", {32, 32}},
      {"blk.0.attn_output.weight", {32, 32}}, {"blk.0.ffn_norm.weight", {32}},    {"blk.0.ffn_gate.weight", {32, 64}},
      {"blk.0.ffn_up.weight", {32, 64}},      {"blk.0.ffn_down.weight", {64, 32}}};

  TensorSpec& tensor(std::string_view name) {
    for (TensorSpec& t : tensors) {
      if (t.name == name) return t;
    }
    return tensors.at(tensors.size());  // throws
  }

  std::string bytes() const {
    GgufBytes b(tensors.size(), keys.size());
    for (const auto& [key, value] : keys) {
      if (const auto* text = std::get_if<std::string>(&value)) b.key(key, GgufType::STRING).string(*text);
      if (const auto* number = std::get_if<uint32_t>(&value)) b.key(key, GgufType::U32).number(*number);
      if (const auto* number = std::get_if<float>(&value)) b.key(key, GgufType::F32).number(*number);
      if (const auto* flag = std::get_if<bool>(&value)) b.key(key, GgufType::BOOL).number(uint8_t{*flag});
    }
    size_t offset = 0;
    for (const TensorSpec& t : tensors) {
      b.tensor(t.name, t.dimensions, t.type, offset);
      offset += (t.bytes() + 31) / 32 * 32;
    }
    b.pad();
    for (const TensorSpec& t : tensors) b.data(t.bytes()).pad();
    return b.text();
  }
};

}  // namespace quire::testing
