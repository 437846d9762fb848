// Adapters that do not fit, or that Quire does not apply, are refused.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/adapter/adapter.h"
#include "model/adapter/adapter_files.h"
#include "model/families.h"
#include "unit/model/edited_adapter.h"

namespace quire {
namespace {

using testing::EditedAdapter;

AdapterFacts check_for(const std::string& path, const std::string& model = "models/llama") {
  const Checkpoint checkpoint = Checkpoint::open(golden_dir() / model);
  return check_adapter(AdapterFiles::open(path), checkpoint, read_model_config(checkpoint));
}

std::string refusal_of(const std::string& path, const std::string& model = "models/llama") {
  try {
    check_for(path, model);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

#define EXPECT_REFUSED(path, words) EXPECT_NE(refusal_of(path).find(words), std::string::npos) << refusal_of(path)

const std::string kQ = "base_model.model.model.layers.0.self_attn.q_proj";

TEST(AdapterFiles, GiveScalesAndRanksOfTheirSettings) {
  const auto scale_of = [](const AdapterFiles& files, const std::string& module) {
    for (const AdapterPair& pair : files.pairs())
      if (pair.module == module) return pair.scale;
    return 0.0f;
  };
  const auto plain = AdapterFiles::open(golden_dir() / "adapters/llama");
  EXPECT_EQ(plain.pairs().size(), 21u);
  EXPECT_EQ(scale_of(plain, "model.layers.2.mlp.down_proj"), 3.0f);
  const auto stabilised = AdapterFiles::open(golden_dir() / "adapters/llama_rslora");
  EXPECT_FLOAT_EQ(scale_of(stabilised, "model.layers.0.self_attn.q_proj"), 3 / std::sqrt(3.0f));
  EXPECT_FLOAT_EQ(scale_of(stabilised, "model.layers.0.mlp.up_proj"), 1.5f);
  EXPECT_FLOAT_EQ(scale_of(stabilised, "model.layers.1.mlp.up_proj"), 2.5f);
  const auto gguf = AdapterFiles::open(golden_dir() / "adapters/qwen2.gguf");
  EXPECT_EQ(gguf.architecture(), "qwen2");
  EXPECT_EQ(scale_of(gguf, "blk.1.attn_q"), 2.0f);
  EXPECT_EQ(check_for((golden_dir() / "adapters/llama").string()).rank, 4);
}

TEST(AdapterFiles, RefusesSettingsThatQuireDoesNotApply) {
  const auto with = [](const char* key, const nlohmann::json& value) {
    EditedAdapter a("llama");
    a.config[key] = value;
    return refusal_of(a.write());
  };
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, nlohmann::json>>{{"modules_to_save", {"lm_head"}},
                                                           {"bias", "all"},
                                                           {"peft_type", "IA3"},
                                                           {"lora_bias", true},
                                                           {"layer_replication", {{0, 2}}},
                                                           {"init_lora_weights", "pissa_niter_16"},
                                                           {"rank_pattern", {{"q_(proj|x)", 4}}},
                                                           {"r", "four"},
                                                           {"lora_alpha", -1}}) {
    EXPECT_NE(with(key, value).find(key), std::string::npos) << key << ": " << with(key, value);
  }
  EXPECT_NE(with("r", 8).find("the rank of \"model.layers.0.mlp.down_proj\" is 4, but adapter_config.json says 8"),
            std::string::npos)
      << with("r", 8);
  EXPECT_EQ(with("init_lora_weights", "gaussian"), "");
}

TEST(AdapterFiles, RefusesTensorsThatMakeNoPairs) {
  EditedAdapter half("llama");
  half.tensors.erase(kQ + ".lora_B.weight");
  EXPECT_REFUSED(half.write(), "\"model.layers.0.self_attn.q_proj\" has lora_A.weight, but not lora_B.weight");
  EditedAdapter bias("llama");
  bias.tensors["base_model.model.lm_head.weight"] = bias.tensors[kQ + ".lora_A.weight"];
  EXPECT_REFUSED(bias.write(), "lm_head.weight\" is no matrix of a LoRA adapter");
  EditedAdapter integers("llama");
  integers.tensors[kQ + ".lora_A.weight"].type = "I16";
  EXPECT_REFUSED(integers.write(), "has type I16; adapters must have F32, F16 or BF16");
  EditedAdapter ranks("llama");
  ranks.tensors[kQ + ".lora_A.weight"].shape = {2, 128};
  EXPECT_REFUSED(ranks.write(), "whose ranks differ");
  EditedAdapter flat("llama");
  flat.tensors[kQ + ".lora_A.weight"].shape = {256};
  EXPECT_REFUSED(flat.write(), "has shape [256]");
  EditedAdapter none("llama");
  none.tensors.clear();
  EXPECT_NE(refusal_of(none.write()), "");
}

TEST(AdapterFiles, RefusesMagnitudesThatDoNotFitTheirMatrices) {
  EditedAdapter undecomposed("llama");
  undecomposed.config["use_dora"] = true;
  EXPECT_REFUSED(undecomposed.write(),
                 "use_dora in adapter_config.json is true, but \"model.layers.0.mlp.down_proj\" has no");
  EditedAdapter unexpected("llama_dora");
  unexpected.config["use_dora"] = false;
  EXPECT_REFUSED(unexpected.write(), "use_dora in adapter_config.json is false, but");
  const std::string magnitudes = kQ + ".lora_magnitude_vector";
  EditedAdapter alone("llama_dora");
  alone.tensors["base_model.model.lm_head.lora_magnitude_vector"] = alone.tensors[magnitudes];
  EXPECT_REFUSED(alone.write(), "\"lm_head\" has magnitudes, but no matrices");
  EditedAdapter few("llama_dora");
  few.tensors[magnitudes].shape = {32};
  few.tensors[magnitudes].bytes.resize(32 * sizeof(float));
  EXPECT_REFUSED(few.write(), "has shape [32]; it must have a number for each of the 64 outputs");
}

TEST(AdapterFiles, RefusesWhatIsNoAdapter) {
  EXPECT_REFUSED("/nowhere/at/all", "there is no adapter");
  EXPECT_REFUSED((golden_dir() / "models/llama").string(), "it has no adapter_config.json");
  EXPECT_REFUSED((golden_dir() / "models-gguf/qwen2.gguf").string(), "its general.type is \"model\", not \"adapter\"");
  EditedAdapter empty("llama");
  const std::string folder = empty.write();
  std::filesystem::remove(folder + "/adapter_model.safetensors");
  EXPECT_REFUSED(folder, "has no adapter_model.safetensors");
}

TEST(Adapter, RefusesOtherModels) {
  const std::string llama = (golden_dir() / "adapters/llama").string();
  EXPECT_NE(refusal_of(llama, "models/glm").find("another model"), std::string::npos)
      << refusal_of(llama, "models/glm");
  EXPECT_NE(refusal_of(llama, "models-gguf/qwen2.gguf").find("convert_lora_to_gguf.py"), std::string::npos);
  const std::string gguf = (golden_dir() / "adapters/qwen2.gguf").string();
  EXPECT_NE(refusal_of(gguf, "models/qwen2").find("needs the model as a GGUF file"), std::string::npos)
      << refusal_of(gguf, "models/qwen2");
  EXPECT_NE(refusal_of(gguf, "models-gguf/seed_oss.gguf").find("architecture \"qwen2\""), std::string::npos);
  EditedAdapter shape("llama");
  shape.tensors[kQ + ".lora_A.weight"].shape = {4, 32};
  shape.tensors[kQ + ".lora_A.weight"].bytes.resize(4 * 32 * 2);
  EXPECT_REFUSED(shape.write(), "has matrices of the shapes [4, 32] and [64, 4], but the model's has 64 inputs and 64");
}

TEST(Adapter, RefusesModulesThatItCannotChange) {
  const auto renamed = [](const std::string& module) {
    EditedAdapter a("llama");
    for (const char* matrix : {".lora_A.weight", ".lora_B.weight"}) {
      a.tensors["base_model.model." + module + matrix] = a.tensors[kQ + matrix];
      a.tensors.erase(kQ + matrix);
    }
    return refusal_of(a.write());
  };
  EXPECT_NE(renamed("lm_head").find("changes \"lm_head\", but Quire applies adapters only to"), std::string::npos)
      << renamed("lm_head");
  EXPECT_NE(renamed("model.layers.7.self_attn.q_proj").find("which the model"), std::string::npos);
  EXPECT_NE(renamed("model.layers.0.self_attn.z_proj").find("z_proj"), std::string::npos);
}

}  // namespace
}  // namespace quire
