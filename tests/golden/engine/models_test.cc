// Whole models compared with other implementations: transformers, llama.cpp, torch, numpy.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/files/mapped_file.h"
#include "base/tensor_type.h"
#include "engine/single_sequence.h"
#include "golden/engine/expected_tensors.h"
#include "golden/engine/loaded.h"
#include "kernels/kernels.h"
#include "model/registry.h"
#include "paths.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// The folders of models that Quire can run: those here, and others where they are at hand.
std::vector<std::string> model_folders() {
  std::vector<std::string> found;
  std::set<std::string> names;
  for (const fs::path& folder : golden_folders("models")) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (fs::exists(entry.path() / "expected.safetensors") && names.insert(entry.path().filename()).second)
        found.push_back(entry.path().string());
    }
  }
  std::ranges::sort(found);
  return found;
}
bool is_here(const fs::path& folder) { return folder.parent_path() == golden_dir() / "models"; }

double tolerance_of(const fs::path& folder) {
  return nlohmann::json::parse(read_text_file(folder / "expected.json")).at("suggested_tolerance_max_abs_fp32");
}

// Compares logits and greedy tokens with a folder's expectations.
void expect_reference(LoadedModel& model, const fs::path& folder) {
  const auto expected = Safetensors::open(folder / "expected.safetensors");
  SingleSequence sequence(model);
  for (int k = 0; expected.find_tensor("prompt_" + std::to_string(k)); ++k) {
    SCOPED_TRACE("prompt " + std::to_string(k));
    const std::string n = "_" + std::to_string(k);
    sequence.clear();
    const TokenIds prompt = ids(expected, "prompt" + n), greedy = ids(expected, "greedy" + n);
    ASSERT_EQ(greedy.size(), 48u);
    const size_t compared = std::getenv("QUIRE_TEST_DEVICE") ? 6 : greedy.size();  // the emulated GPU is slow
    auto logits = sequence.append(prompt, true);
    EXPECT_LE(largest_difference(values<float>(expected, "logits" + n), logits), tolerance_of(folder));
    logits = logits.last(static_cast<size_t>(model.target.config.vocab));
    for (const TokenId token : std::span(greedy).first(compared)) {
      const TokenId best = argmax(logits);
      ASSERT_EQ(best, token);
      logits = sequence.append({&best, 1}, false);
    }
  }
}

class HfModels : public ::testing::TestWithParam<std::string> {};

TEST_P(HfModels, HaveTheLogitsAndTokensOfTransformers) {
  for (const KernelSet* set : available_kernels()) {
    // The others take too long, or are not used.
    const bool one = !is_here(GetParam()) || std::getenv("QUIRE_TEST_DEVICE");
    if (one && set != available_kernels().back()) continue;
    SCOPED_TRACE(std::string(set->name));
    Loaded loaded(GetParam(), set->name, "f32");
    expect_reference(loaded.model, GetParam());
  }
}

TEST_P(HfModels, AcceptTheOlderSpellingOfTheirConfiguration) {
  const fs::path folder = GetParam(), copy = fs::temp_directory_path() / ("quire-v4-" + folder.filename().string());
  fs::remove_all(copy);
  fs::create_directory(copy);
  fs::copy(folder / "config_v4.json", copy / "config.json");
  fs::create_symlink(fs::absolute(folder / "model.safetensors"), copy / "model.safetensors");
  Loaded a(folder.string(), "auto", "f32"), b(copy.string(), "auto", "f32");
  const auto expected = Safetensors::open(folder / "expected.safetensors");
  const TokenIds prompt = ids(expected, expected.find_tensor("prompt_2") ? "prompt_2" : "prompt_0");
  SingleSequence one(a.model), other(b.model);
  const auto x = one.append(prompt, true), y = other.append(prompt, true);
  EXPECT_EQ(std::memcmp(x.data(), y.data(), x.size() * sizeof(float)), 0);
  fs::remove_all(copy);
}

std::string name_of(const ::testing::TestParamInfo<std::string>& folder) {
  return fs::path(folder.param).filename().string();
}
INSTANTIATE_TEST_SUITE_P(Families, HfModels, ::testing::ValuesIn(model_folders()), name_of);

// GGUF files of the models, as llama.cpp converts them.
class GgufTwins : public ::testing::TestWithParam<std::string> {};

TEST_P(GgufTwins, HaveTheLogitsAndTokensOfTransformers) {
  const std::string name = fs::path(GetParam()).stem().string();
  Loaded loaded(GetParam(), "auto", "f32");
  for (const fs::path& folder : golden_folders("models")) {
    if (!fs::exists(folder / name)) continue;
    expect_reference(loaded.model, folder / name);
    return;
  }
  FAIL() << "there is no folder " << name << " with expectations";
}

std::vector<std::string> gguf_twins() {
  std::vector<std::string> found;
  std::set<std::string> names;
  for (const fs::path& folder : golden_folders("models-gguf")) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".gguf" && names.insert(entry.path().stem()).second)
        found.push_back(entry.path().string());
    }
  }
  std::ranges::sort(found);
  return found;
}
INSTANTIATE_TEST_SUITE_P(Families, GgufTwins, ::testing::ValuesIn(gguf_twins()),
                         [](const auto& file) { return fs::path(file.param).stem().string(); });

void expect_reference_logits_and_tokens(const fs::path& folder, const std::string& name) {
  const auto expected = Safetensors::open(folder / (name + ".ref.safetensors"));
  const TokenIds prompt = ids(expected, "prompt"), tokens = ids(expected, "torch_tokens");
  const auto wanted = values<float>(expected, "torch_prompt_logits");
  double top = 0;
  for (const float v : wanted) top = std::max(top, std::abs(double{v}));
  for (const std::string activations : {"f32", "int8", "int8x2", "bf16"}) {
    SCOPED_TRACE(name + " " + activations);
    Loaded loaded((folder / (name + ".gguf")).string(), "auto", activations);
    SingleSequence sequence(loaded.model);
    const auto logits = sequence.append(prompt, true);
    if (activations == "f32") {
      EXPECT_LE(largest_difference(wanted, logits), 2e-4 + 1e-4 * top);
    } else {
      EXPECT_LE(relative_distance(wanted, logits), 0.1);
      if (!name.starts_with("stories")) continue;  // random weights magnify rounding
    }
    auto last = logits.last(static_cast<size_t>(loaded.model.target.config.vocab));
    for (const TokenId token : tokens) {
      const TokenId best = argmax(last);
      ASSERT_EQ(best, token);
      last = sequence.append({&best, 1}, false);
    }
  }
}

TEST(GgufModels, HaveTheReferencesLogitsWithATensorOfEveryType) {
  const fs::path folder = golden_dir() / "formats/gguf-models";
  size_t types = 0;
  for (const auto& type : tensor_types()) types += type.loadable;
  EXPECT_EQ(
      nlohmann::json::parse(read_text_file(folder / "index.json"))["files"]["every-type.gguf"]["tensor_types"].size(),
      types)
      << "a new weight type belongs into tests/golden/make/make_gguf.py";
  expect_reference_logits_and_tokens(folder, "every-type");
}

// Files quantized by llama.cpp, where they are at hand.
class OutsideGgufModels : public ::testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OutsideGgufModels);

TEST_P(OutsideGgufModels, HaveTorchsLogits) {
  expect_reference_logits_and_tokens(shared_dir() / "golden/formats/gguf-models", GetParam());
}

std::vector<std::string> outside_gguf_models() {
  const fs::path folder = shared_dir() / "golden/formats/gguf-models";
  std::vector<std::string> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (entry.path().extension() == ".gguf") found.push_back(entry.path().stem().string());
  }
  std::ranges::sort(found);
  return found;
}
INSTANTIATE_TEST_SUITE_P(Files, OutsideGgufModels, ::testing::ValuesIn(outside_gguf_models()));

class SmolLm2 : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      path_ = resolve_model("smollm2").string();
    } catch (const std::exception& e) {
      GTEST_SKIP() << e.what();
    }
    // The references outside have further texts, which are not ours to distribute.
    expected_ = nlohmann::json::parse(read_text_file(golden_folders("smollm2").back() / "expected.json"));
  }
  std::string path_;
  nlohmann::json expected_;
};

double log_sum(std::span<const float> x) {
  const double top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const float v : x) sum += std::exp(v - top);
  return top + std::log(sum);
}

TEST_F(SmolLm2, ContinuesTextsLikeTheReference) {
  for (const char* activations : {"f32", "int8"}) {
    Loaded loaded(path_, "auto", activations);
    const bool exact = activations == std::string("f32");
    for (const char* kind : {"chats", "raw"}) {
      for (const auto& c : expected_.at(kind)) {
        const auto prompt = c.at("ids").get<TokenIds>(), greedy = c.at("greedy_ids").get<TokenIds>();
        const auto margins = c.at("greedy_margins").get<std::vector<double>>();
        SingleSequence sequence(loaded.model);
        std::span<float> logits;
        for (size_t at = 0; at < prompt.size(); at += 128)
          logits = sequence.append(std::span(prompt).subspan(at, std::min<size_t>(128, prompt.size() - at)), false);
        if (exact) {
          const double sum = log_sum(logits);
          for (const auto& [id, logprob] : c.at("top20_logprobs").get<std::vector<std::pair<TokenId, double>>>()) {
            EXPECT_NEAR(logits[static_cast<size_t>(id)] - sum, logprob, 1e-3) << c.at("name");
          }
        } else if (margins[0] > 0.5) {
          EXPECT_EQ(argmax(logits), greedy[0]) << c.at("name");
        }
        for (size_t i = 0; exact && i < greedy.size() && margins[i] >= 1e-3; ++i) {
          const TokenId best = argmax(logits);
          ASSERT_EQ(best, greedy[i]) << c.at("name") << " step " << i;
          logits = sequence.append({&best, 1}, false);
        }
      }
    }
  }
}

// wikitext-2, where it is at hand.
class SmolLm2OnText : public SmolLm2, public ::testing::WithParamInterface<fs::path> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SmolLm2OnText);

TEST_P(SmolLm2OnText, HasTheReferencesPerplexity) {
  const auto& reference = expected_.at("wikitext2_perplexity").at("no_bos").at("second_half").at("chunk_mean_nll");
  // The first four chunks are enough.
  const std::string all = read_text_file(GetParam());
  for (const char* activations : {"f32", "int8", "int8x2", "bf16"}) {
    Loaded loaded(path_, "auto", activations);
    const TokenIds tokens = loaded.model.target.text.tokenizer->encode(std::string_view(all).substr(0, 20'000),
                                                                       {.add_special = false, .parse_special = false});
    const auto vocab = static_cast<size_t>(loaded.model.target.config.vocab);
    double total = 0, wanted = 0;
    constexpr size_t kChunks = 4, kContext = 512;
    ASSERT_GE(tokens.size(), kChunks * kContext);
    for (size_t c = 0; c < kChunks; ++c) {
      SingleSequence sequence(loaded.model);
      double sum = 0;
      for (size_t at = 0; at < kContext; at += 128) {
        const auto logits = sequence.append(std::span(tokens).subspan(c * kContext + at, 128), true);
        for (size_t i = 0; i < 128; ++i) {
          const size_t position = at + i;
          if (position < 256 || position + 1 >= kContext) continue;
          const auto row = logits.subspan(i * vocab, vocab);
          sum += log_sum(row) - row[static_cast<size_t>(tokens[c * kContext + position + 1])];
        }
      }
      total += sum / 255;
      wanted += reference.at(c).get<double>();
    }
    const double ratio = std::exp((total - wanted) / kChunks);
    EXPECT_NEAR(ratio, 1.0, activations == std::string("f32") ? 1e-4 : 0.01) << activations;
  }
}

std::vector<fs::path> wikitext() {
  const fs::path text = shared_dir() / "data/text/wikitext-2-raw.wiki.test.raw";
  return fs::exists(text) ? std::vector{text} : std::vector<fs::path>();
}
INSTANTIATE_TEST_SUITE_P(Wikitext2, SmolLm2OnText, ::testing::ValuesIn(wikitext()), [](const auto&) { return "raw"; });

}  // namespace
}  // namespace quire
