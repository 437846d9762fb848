// Heads that do not fit their target, or are damaged, are refused by name.

#include "speculate/network/head_tensors.h"

#include <gtest/gtest.h>

#include "error_of.h"
#include "model/families.h"
#include "ops/cpu/cpu_backend.h"
#include "speculate/network/eagle.h"
#include "speculate/network/medusa.h"
#include "speculate/network/token_frequency.h"
#include "unit/model/edited_model.h"

namespace quire {
namespace {

using testing::EditedModel;
using testing::EditedTensor;

ModelConfig target_config(const char* name = "llama") {
  return read_model_config(Checkpoint::open(golden_dir() / "models" / name));
}

// Only reading them tells.
bool is_of_numbers(const std::string& error) { return error.find("has the value") != std::string::npos; }
std::string eagle_error(EditedModel& head, const ModelConfig& config = target_config()) {
  Team team(1);
  CpuBackend backend("auto", team);
  const auto folder = head.write();
  const std::string unread = error_of(head.weights(), [&] { check_eagle(folder, config); }),
                    read = error_of(head.weights(), [&] { read_eagle(folder, config, backend, team); });
  if (!is_of_numbers(read)) {
    EXPECT_EQ(unread, read);
  }
  return read;
}
std::string medusa_error(EditedModel& head, const ModelConfig& config = target_config()) {
  Team team(1);
  CpuBackend backend("auto", team);
  const auto folder = head.write();
  const std::string unread = error_of(head.weights(), [&] { check_medusa(folder, config); }),
                    read = error_of(head.weights(), [&] { read_medusa(folder, config, backend, team); });
  if (!is_of_numbers(read)) {
    EXPECT_EQ(unread, read);
  }
  return read;
}

// A list of zeros.
EditedTensor zeros(const std::string& type, std::vector<uint64_t> shape) {
  size_t bytes = type == "BF16" || type == "F16" ? 2 : 4;
  for (const uint64_t n : shape) bytes *= n;
  return {type, std::move(shape), std::string(bytes, '\0')};
}

TEST(EagleHeads, AreMeasuredWithoutBeingRead) {
  const auto path = golden_dir() / "drafters/eagle";
  Team team(1);
  CpuBackend backend("auto", team);
  const FeatureLayer read = read_eagle(path, target_config(), backend, team);
  const FeatureTotals totals = check_eagle(path, target_config());
  EXPECT_EQ(config_identity(totals.config), config_identity(read.config));
  EXPECT_EQ(totals.output.rows, 0);
  const LayerWeights& w = read.weights.layers[0];
  uint64_t bytes = (w.mixer_in.weight.size() + w.ffn_in.weight.size()) * sizeof(float);
  for (const Linear* m : {&read.weights.join, &w.attention.q, &w.attention.k, &w.attention.v, &w.attention.o,
                          &w.mlp.gate, &w.mlp.up, &w.mlp.down})
    bytes += m->weight.bytes();
  EXPECT_EQ(totals.bytes, bytes);
}

TEST(MedusaHeads, AreMeasuredWithoutBeingRead) {
  const auto path = golden_dir() / "drafters/medusa";
  Team team(1);
  CpuBackend backend("auto", team);
  const MedusaHeads read = read_medusa(path, target_config(), backend, team);
  const MedusaTotals totals = check_medusa(path, target_config());
  EXPECT_EQ(static_cast<size_t>(totals.heads), read.heads.size());
  const Linear& head = read.heads[0];
  EXPECT_EQ(totals.bytes, read.heads.size() * (head.weight.bytes() + head.bias.size() * sizeof(float)));
}

TEST(EagleHeads, AreReadFromAnyFloatType) {
  for (const char* type : {"BF16", "F16", "F32"}) {
    EditedModel head("../drafters/eagle");
    for (auto& [name, tensor] : head.tensors) tensor = zeros(type, tensor.shape);
    EXPECT_EQ(eagle_error(head), "") << type;
  }
}

TEST(EagleHeads, WithoutATensorAreRefused) {
  EditedModel whole("../drafters/eagle");
  for (const auto& [name, tensor] : whole.tensors) {
    EditedModel head("../drafters/eagle");
    head.tensors.erase(name);
    EXPECT_EQ(eagle_error(head), "FILE: tensor " + name + " is missing");
  }
}

TEST(EagleHeads, ThatDoNotFitTheTargetAreRefused) {
  EditedModel head("../drafters/eagle");
  ModelConfig other = target_config();
  other.hidden = 72;
  EXPECT_EQ(eagle_error(head, other),
            "FILE: tensor layer.mlp.gate_proj.weight has shape [96, 64], but for this target it must have [1 to "
            "1048576, 72]");
  head.tensors["layer.self_attn.k_proj.weight"] = zeros("BF16", {64, 64});
  EXPECT_EQ(eagle_error(head),
            "FILE: tensor layer.self_attn.k_proj.weight has shape [64, 64], but for this target it must have [32, 64]");
  head.tensors["layer.self_attn.k_proj.weight"] = zeros("BF16", {32, 64});
  head.tensors["layer.mlp.up_proj.weight"] = zeros("BF16", {95, 64});
  EXPECT_EQ(eagle_error(head),
            "FILE: tensor layer.mlp.up_proj.weight has shape [95, 64], but for this target it must have [96, 64]");
  head.tensors["layer.mlp.up_proj.weight"] = zeros("F32", {96, 64});
  EXPECT_EQ(eagle_error(head), "FILE: layer.mlp.gate_proj.weight and layer.mlp.up_proj.weight must have one type");
  head.tensors["layer.mlp.gate_proj.weight"] = zeros("BF16", {0, 64});
  EXPECT_EQ(
      eagle_error(head),
      "FILE: tensor layer.mlp.gate_proj.weight has shape [0, 64], but for this target it must have [1 to 1048576, 64]");
}

TEST(EagleHeads, OfTargetsWithoutOrdinaryAttentionAreRefused) {
  EditedModel head("../drafters/eagle");
  for (const char* name : {"deepseek_v3", "mamba2"})
    EXPECT_NE(eagle_error(head, target_config(name)).find("has no layer with attention"), std::string::npos) << name;
}

TEST(EagleHeads, AreToldApartByTheirNumbers) {
  Team team(1);
  CpuBackend backend("auto", team);
  const std::string whole = read_eagle(golden_dir() / "drafters/eagle", target_config(), backend, team).identity;
  EXPECT_EQ(read_eagle(golden_dir() / "drafters/eagle", target_config(), backend, team).identity, whole);
  EditedModel head("../drafters/eagle");
  head.tensors["fc.weight"].bytes[0] ^= 1;
  EXPECT_NE(read_eagle(head.write(), target_config(), backend, team).identity, whole);
}

TEST(EagleHeads, ForgetWhereAllLayersOfTheTargetDo) {
  Team team(1);
  CpuBackend backend("auto", team);
  ModelConfig config = target_config();
  const auto window = [&] {
    const FeatureLayer head = read_eagle(golden_dir() / "drafters/eagle", config, backend, team);
    return std::get<Attention>(head.config.layers[0].mixer).window;
  };
  std::get<Attention>(config.layers[0].mixer).window = 32;
  EXPECT_EQ(window(), 0);
  std::get<Attention>(config.layers[1].mixer).window = 48;
  std::get<Attention>(config.layers[2].mixer).window = 32;
  EXPECT_EQ(window(), 48);
}

TEST(MedusaHeads, ThatAreMissingAreNamed) {
  EditedModel head("../drafters/medusa");
  head.tensors.erase("heads.1.weight");
  EXPECT_EQ(medusa_error(head), "FILE: tensor heads.1.weight is missing");
  head.tensors.erase("heads.0.bias");
  EXPECT_EQ(medusa_error(head), "FILE: tensor heads.0.bias is missing");
  head.tensors.clear();
  head.tensors["heads.x.weight"] = zeros("F32", {64, 64});
  EXPECT_EQ(medusa_error(head), "FILE: tensor heads.0.weight is missing; these are no Medusa heads");
  head.tensors["heads.16.weight"] = zeros("F32", {64, 64});
  EXPECT_EQ(medusa_error(head), "FILE: tensor heads.16.weight: at most 16 heads are supported");
}

TEST(MedusaHeads, ThatDoNotFitTheTargetAreRefused) {
  EditedModel head("../drafters/medusa");
  ModelConfig other = target_config();
  other.hidden = 128;
  EXPECT_EQ(medusa_error(head, other),
            "FILE: tensor heads.0.weight has shape [64, 64], but for this target it must have [128, 128]");
  head.tensors["heads.2.bias"] = zeros("BF16", {65});
  EXPECT_EQ(medusa_error(head), "FILE: tensor heads.2.bias has shape [65], but for this target it must have [64]");
}

TEST(MedusaHeads, OfOtherTypesAreRefused) {
  EditedModel head("../drafters/medusa");
  head.tensors["heads.1.weight"] = zeros("I32", {64, 64});
  EXPECT_EQ(medusa_error(head), "FILE: tensor heads.1.weight has type I32; a head must have BF16, F16 or F32");
}

TEST(MedusaHeads, WithANumberThatIsNoneAreDamaged) {
  EditedModel head("../drafters/medusa");
  const std::string nan = "\xC0\x7F";
  head.tensors["heads.1.weight"].bytes.replace(2 * (3 * 64 + 5), 2, nan);
  EXPECT_EQ(medusa_error(head), "FILE: tensor heads.1.weight has the value nan in row 3; the file is damaged");
  head.tensors["heads.0.bias"].bytes.replace(2 * 7, 2, nan);
  EXPECT_EQ(medusa_error(head), "FILE: tensor heads.0.bias has the value nan at index 7; the file is damaged");
}

TEST(MedusaHeads, WithTensorsOfNoUseAreRefused) {
  EditedModel head("../drafters/medusa");
  head.tensors["heads.0.lm_head"] = zeros("F32", {1});
  EXPECT_EQ(medusa_error(head), "FILE: unexpected tensor heads.0.lm_head");
  EditedModel eagle("../drafters/eagle");
  EXPECT_EQ(medusa_error(eagle), "FILE: tensor heads.0.weight is missing; these are no Medusa heads");
}

// ---- the list of frequent tokens

EditedTensor list(const std::vector<int32_t>& ids) {
  return {"I32", {ids.size()}, {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t)}};
}

TEST(TokenFrequency, GivesTheFirstIds) {
  EditedModel file("../drafters/medusa");
  file.tensors = {{"ids_by_frequency", list({5, 2, 9, 1})}};
  EXPECT_EQ(read_token_frequency(file.write(), 10, 3), (TokenIds{5, 2, 9}));
}

TEST(TokenFrequency, RefusesListsThatAreNone) {
  EditedModel file("../drafters/medusa");
  const auto error_with = [&](const EditedTensor& ids, int count) {
    file.tensors = {{"ids_by_frequency", ids}};
    const auto folder = file.write();
    return error_of(file.weights(), [&] { read_token_frequency(folder, 10, count); });
  };
  EXPECT_EQ(error_with(list({5, 2}), 3),
            "FILE: 3 output rows are wanted, but ids_by_frequency lists 2 tokens; use 1 to 2");
  EXPECT_EQ(error_with(list({5, 2}), 0),
            "FILE: 0 output rows are wanted, but ids_by_frequency lists 2 tokens; use 1 to 2");
  EXPECT_EQ(error_with(list({5, 10}), 2),
            "FILE: tensor ids_by_frequency has the id 10 at index 1, outside the target's vocabulary of 10");
  EXPECT_EQ(error_with(list({5, -1}), 2),
            "FILE: tensor ids_by_frequency has the id -1 at index 1, outside the target's vocabulary of 10");
  EXPECT_EQ(error_with(list({5, 5}), 2), "FILE: tensor ids_by_frequency has the id 5 twice");
  EXPECT_EQ(error_with(zeros("F32", {4}), 2),
            "FILE: tensor ids_by_frequency has type F32 and 1 dimensions; it must be a list of I32");
  file.tensors = {{"ids", list({1})}};
  const auto folder = file.write();
  EXPECT_EQ(error_of(file.weights(), [&] { read_token_frequency(folder, 10, 1); }),
            "FILE: tensor ids_by_frequency is missing");
}

}  // namespace
}  // namespace quire
