#include "model/weights.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "error_of.h"
#include "model/families.h"
#include "model/model_text.h"
#include "model/synth.h"
#include "ops/cpu/cpu_backend.h"
#include "paths.h"
#include "unit/model/edited_model.h"
#include "unit/model/tiny_gguf.h"

namespace quire {
namespace {

using testing::EditedTensor;
using testing::kI32;
using testing::kQ8_0;
using testing::TensorSpec;
using testing::TinyGguf;

std::vector<TensorSpec> llama_tensors() { return TinyGguf().tensors; }

// The message that check_weights throws; empty if it accepts the model. Loading must agree.
std::string problem_with_tensors(const std::vector<TensorSpec>& tensors) {
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
    CpuBackend backend("auto", team);
    found = message_of([&] { check_weights(checkpoint, config); });
    EXPECT_EQ(found, message_of([&] { load_weights(checkpoint, config, backend, team, {.memory = size_t{1} << 30}); }));
  }
  std::filesystem::remove(path);
  const std::string prefix = path.string() + ": ";
  return found.starts_with(prefix) ? found.substr(prefix.size()) : found;
}

TEST(CheckWeights, AcceptsWhatLoadingAccepts) {
  auto tensors = llama_tensors();
  EXPECT_EQ(problem_with_tensors(tensors), "");
  tensors.push_back({"blk.0.attn_q.bias", {32}});
  EXPECT_EQ(problem_with_tensors(tensors), "");
}

TEST(CheckWeights, RefusesBiasesOfTheWrongShape) {
  auto tensors = llama_tensors();
  tensors.push_back({"blk.0.attn_q.bias", {32, 1}});
  EXPECT_EQ(problem_with_tensors(tensors), "tensor blk.0.attn_q.bias has shape [1, 32], expected [32]");
}

TEST(CheckWeights, RefusesGateAndUpOfDifferentKinds) {
  auto tensors = llama_tensors();
  for (TensorSpec& t : tensors) {
    if (t.name == "blk.0.ffn_up.weight") t.type = kQ8_0;
  }
  EXPECT_EQ(problem_with_tensors(tensors),
            "layer 0: the gate and up projections must be both quantized or both unquantized");
}

TEST(CheckWeights, RefusesMissingUnknownAndUnloadableTensors) {
  auto missing = llama_tensors();
  missing.pop_back();
  EXPECT_EQ(problem_with_tensors(missing), "tensor blk.0.ffn_down.weight is missing");
  auto unknown = llama_tensors();
  unknown.push_back({"blk.0.attn_sinks.weight", {1}});
  EXPECT_EQ(problem_with_tensors(unknown),
            "unexpected tensor blk.0.attn_sinks.weight: Quire's llama architecture does not use it");
  auto unloadable = llama_tensors();
  unloadable[1].type = kI32;
  EXPECT_EQ(problem_with_tensors(unloadable), "tensor output_norm.weight has type I32, which Quire cannot load");
}

// Another program writes to a model's file while it is loaded, as a repeated download does.
class ChangingFile : public ::testing::TestWithParam<bool> {};

TEST_P(ChangingFile, IsLoadedOrRefused) {
  namespace fs = std::filesystem;
  const bool is_gguf = GetParam();
  const fs::path folder = fs::temp_directory_path() / ("quire-changing-" + std::to_string(getpid()));
  fs::create_directories(folder);
  const fs::path model = is_gguf ? folder / "model.gguf" : folder,
                 file = is_gguf ? model : folder / "model.safetensors";
  const fs::path golden = golden_dir() / "models/llama";
  std::string whole;
  if (is_gguf) {
    SynthShape shape{"tiny", 2, 256, 6, 2, 32, 512, 320, 512, 10000, false};
    write_synthetic_model(file, shape, TensorType::Q4_K, 5);
    whole = read_text_file(file);
  } else {
    fs::copy_file(golden / "config.json", folder / "config.json", fs::copy_options::overwrite_existing);
    whole = read_text_file(golden / "model.safetensors");
  }
  std::atomic<bool> done = false;
  std::thread writer([&] {
    std::minstd_rand random(1);
    while (!done) {
      {
        std::ofstream out(file, std::ios::binary | std::ios::trunc);
        for (size_t at = 0; at < whole.size(); at += 65536)
          out.write(&whole[at], std::min(whole.size() - at, size_t{65536}));
      }
      std::fstream out(file, std::ios::binary | std::ios::in | std::ios::out);
      for (int i = 0; i < 20; ++i) {
        const size_t at = random() % (i % 2 == 0 ? 4096 : whole.size());
        out.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(random())).flush();
      }
      fs::resize_file(file, random() % whole.size());
      fs::resize_file(file, whole.size());
    }
  });
  int loaded = 0, changed = 0;
  Team team(2);
  CpuBackend backend("auto", team);
  for (int i = 0; i < 300 || (changed == 0 && i < 10'000); ++i) {
    try {
      const Checkpoint checkpoint = Checkpoint::open(model);
      const ModelConfig config = read_model_config(checkpoint);
      load_model_text(checkpoint);
      load_weights(checkpoint, config, backend, team, {.memory = size_t{1} << 30});
      ++loaded;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(folder.string()), std::string::npos) << e.what();
      if (std::string(e.what()).find("while it was read") != std::string::npos) ++changed;
    }
  }
  done = true;
  writer.join();
  EXPECT_GT(changed, 0) << loaded;
  std::ofstream(file, std::ios::binary) << whole;
  const Checkpoint checkpoint = Checkpoint::open(model);
  EXPECT_NO_THROW(load_weights(checkpoint, read_model_config(checkpoint), backend, team, {.memory = size_t{1} << 30}));
  fs::remove_all(folder);
}
INSTANTIATE_TEST_SUITE_P(Files, ChangingFile, ::testing::Values(true, false));

// Buffers that old files store; every family may have them.
TEST(CheckWeights, IgnoresBuffers) {
  const auto problem = [](const std::string& golden, const std::string& name, EditedTensor tensor) {
    testing::EditedModel model(golden);
    model.tensors[name] = std::move(tensor);
    const Checkpoint checkpoint = Checkpoint::open(model.write());
    return error_of([&] { check_weights(checkpoint, read_model_config(checkpoint)); });
  };
  const EditedTensor numbers{"F32", {4}, std::string(16, '\1')}, mask{"U8", {1, 1, 4, 4}, std::string(16, '\1')};
  for (const char* golden : {"llama", "qwen2", "gpt2", "gptj", "phimoe", "falcon", "olmo", "mpt", "stablelm_qk_norm"}) {
    for (const char* name : {"inv_freq", "rotary_emb.inv_freq", "model.layers.0.self_attn.rotary_emb.inv_freq",
                             "model.rotary_emb.original_inv_freq", "transformer.h.0.attn.embed_positions",
                             "model.embeddings.position_ids", "position_ids", "h.0.attn.masked_bias",
                             "transformer.rotary_pos_emb.inv_freq", "model.layers.1.self_attn.rotary_emb.cos_cached"})
      EXPECT_EQ(problem(golden, name, numbers), "") << golden << " " << name;
    for (const char* name : {"transformer.h.0.attn.bias", "h.1.attn.bias", "gpt_neox.layers.0.attention.bias"})
      EXPECT_EQ(problem(golden, name, mask), "") << golden << " " << name;
    // A weight that the family does not have.
    EXPECT_NE(problem(golden, "model.layers.0.self_attn.bias", numbers), "") << golden;
    EXPECT_NE(problem(golden, "model.layers.0.mlp.inv_freq.weight", numbers), "") << golden;
  }
}

TEST(TiedOutput, IsUsedIfItDiffersFromTheEmbedding) {
  testing::EditedModel model("llama_tied_rope3");
  ASSERT_TRUE(model.config["tie_word_embeddings"]);
  EditedTensor output = model.tensors.at("model.embed_tokens.weight");
  const auto read = [&] {
    model.tensors["lm_head.weight"] = output;
    return read_model_config(Checkpoint::open(model.write()));
  };
  EXPECT_TRUE(read().tied_output);
  EXPECT_TRUE(read().warnings.empty());
  output.bytes.back() = static_cast<char>(output.bytes.back() ^ 1);
  const ModelConfig config = read();
  EXPECT_FALSE(config.tied_output);
  ASSERT_EQ(config.warnings.size(), 1u);
  EXPECT_NE(config.warnings[0].find("tie_word_embeddings is true, but lm_head.weight differs"), std::string::npos);
  const Checkpoint checkpoint = Checkpoint::open(model.write());
  Team team(1);
  CpuBackend backend("auto", team);
  const Weights weights = load_weights(checkpoint, config, backend, team, {.memory = size_t{1} << 30});
  EXPECT_NE(weights.output.weight.data, weights.embedding.weight.data);
}

TEST(Checkpoint, KnowsItsOwnFilesByAnyName) {
  namespace fs = std::filesystem;
  testing::EditedModel model("llama");
  const fs::path folder = model.write(), link = folder / "link", hard = folder.parent_path() / "quire-hard-link";
  const Checkpoint checkpoint = Checkpoint::open(folder);
  fs::remove(hard);
  fs::create_symlink(folder / "config.json", link);
  fs::create_hard_link(model.weights(), hard);
  for (const fs::path& file : {model.weights(), folder / "config.json", link, hard, folder / "." / "model.safetensors"})
    EXPECT_TRUE(checkpoint.reads(file)) << file;
  std::ofstream(folder.string() + ".gguf") << "other";
  for (const fs::path& file : {fs::path(folder.string() + ".gguf"), folder / "new.gguf", fs::path("/dev/null")})
    EXPECT_FALSE(checkpoint.reads(file)) << file;
  fs::remove(hard);
  fs::remove(folder.string() + ".gguf");
}

}  // namespace
}  // namespace quire
