#include "model/weights.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "../format/gguf_bytes.h"
#include "base/error.h"
#include "model/families.h"

namespace quire {
namespace {

constexpr uint32_t kF32 = 0, kI32 = 26, kQ8_0 = 8;  // ggml's type ids

struct TensorSpec {
  std::string name;
  std::vector<uint64_t> dimensions;  // innermost first
  uint32_t type = kF32;

  size_t bytes() const {
    size_t elements = 1;
    for (const uint64_t d : dimensions) elements *= d;
    return type == kQ8_0 ? elements / 32 * 34 : elements * 4;
  }
};

// A Llama of one layer: hidden size 32, one head, feed-forward size 64, 8 tokens, tied output.
std::vector<TensorSpec> llama_tensors() {
  return {
      {"token_embd.weight", {32, 8}},         {"output_norm.weight", {32}},       {"blk.0.attn_norm.weight", {32}},
      {"blk.0.attn_q.weight", {32, 32}},      {"blk.0.attn_k.weight", {32, 32}},  {"blk.0.attn_v.weight", {32, 32}},
      {"blk.0.attn_output.weight", {32, 32}}, {"blk.0.ffn_norm.weight", {32}},    {"blk.0.ffn_gate.weight", {32, 64}},
      {"blk.0.ffn_up.weight", {32, 64}},      {"blk.0.ffn_down.weight", {64, 32}}};
}

std::string llama_gguf(const std::vector<TensorSpec>& tensors) {
  GgufBytes b(tensors.size(), 7);
  b.key("general.architecture", GgufType::STRING).string("llama");
  const std::pair<const char*, uint32_t> sizes[] = {{"block_count", 1},
                                                    {"embedding_length", 32},
                                                    {"attention.head_count", 1},
                                                    {"feed_forward_length", 64},
                                                    {"context_length", 64}};
  for (const auto& [key, value] : sizes) b.key(std::string("llama.") + key, GgufType::U32).number(value);
  b.key("llama.attention.layer_norm_rms_epsilon", GgufType::F32).number(1e-5f);
  size_t offset = 0;
  for (const TensorSpec& t : tensors) {
    b.tensor(t.name, t.dimensions, t.type, offset);
    offset += (t.bytes() + 31) / 32 * 32;
  }
  b.pad();
  for (const TensorSpec& t : tensors) b.data(t.bytes()).pad();
  return b.text();
}

// The message that check_weights throws; empty if it accepts the model. Loading must agree.
std::string problem_with(const std::vector<TensorSpec>& tensors) {
  const auto path = std::filesystem::temp_directory_path() / ("quire-weights-" + std::to_string(getpid()) + ".gguf");
  std::ofstream(path, std::ios::binary) << llama_gguf(tensors);
  const auto message_of = [](const auto& act) -> std::string {
    try {
      act();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  std::string found;
  {
    const Checkpoint checkpoint = Checkpoint::open(path);
    const ModelConfig config = read_model_config(checkpoint);
    Team team(1);
    found = message_of([&] { check_weights(checkpoint, config); });
    EXPECT_EQ(found, message_of([&] { load_weights(checkpoint, config, team, size_t{1} << 30); }));
  }
  std::filesystem::remove(path);
  const std::string prefix = path.string() + ": ";
  return found.starts_with(prefix) ? found.substr(prefix.size()) : found;
}

TEST(CheckWeights, AcceptsWhatLoadingAccepts) {
  auto tensors = llama_tensors();
  EXPECT_EQ(problem_with(tensors), "");
  tensors.push_back({"blk.0.attn_q.bias", {32}});
  EXPECT_EQ(problem_with(tensors), "");
}

TEST(CheckWeights, RefusesBiasesOfTheWrongShape) {
  auto tensors = llama_tensors();
  tensors.push_back({"blk.0.attn_q.bias", {32, 1}});
  EXPECT_EQ(problem_with(tensors), "tensor blk.0.attn_q.bias has shape [1, 32], expected [32]");
}

TEST(CheckWeights, RefusesGateAndUpOfDifferentKinds) {
  auto tensors = llama_tensors();
  for (TensorSpec& t : tensors) {
    if (t.name == "blk.0.ffn_up.weight") t.type = kQ8_0;
  }
  EXPECT_EQ(problem_with(tensors), "layer 0: the gate and up projections must be both quantized or both unquantized");
}

TEST(CheckWeights, RefusesMissingUnknownAndUnloadableTensors) {
  auto missing = llama_tensors();
  missing.pop_back();
  EXPECT_EQ(problem_with(missing), "tensor blk.0.ffn_down.weight is missing");
  auto unknown = llama_tensors();
  unknown.push_back({"blk.0.attn_sinks.weight", {1}});
  EXPECT_EQ(problem_with(unknown),
            "unexpected tensor blk.0.attn_sinks.weight: Quire's llama architecture does not use it");
  auto unloadable = llama_tensors();
  unloadable[1].type = kI32;
  EXPECT_EQ(problem_with(unloadable), "tensor output_norm.weight has type I32, which Quire cannot load");
}

}  // namespace
}  // namespace quire
