#include "model/weights.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/families.h"
#include "unit/model/tiny_gguf.h"

namespace quire {
namespace {

using testing::kI32;
using testing::kQ8_0;
using testing::TensorSpec;
using testing::TinyGguf;

std::vector<TensorSpec> llama_tensors() { return TinyGguf().tensors; }

// The message that check_weights throws; empty if it accepts the model. Loading must agree.
std::string problem_with(const std::vector<TensorSpec>& tensors) {
  const auto path = std::filesystem::temp_directory_path() / ("quire-weights-" + std::to_string(getpid()) + ".gguf");
  std::ofstream(path, std::ios::binary) << TinyGguf{.tensors = tensors}.bytes();
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
    EXPECT_EQ(found, message_of([&] { load_weights(checkpoint, config, team, {.memory = size_t{1} << 30}); }));
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
