// Whole models compared with other implementations: transformers, llama.cpp, torch, numpy.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "base/tensor_type.h"
#include "engine/single_sequence.h"
#include "format/safetensors.h"
#include "model/registry.h"
#include "paths.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

template <class T>
std::vector<T> values(const Safetensors& file, const std::string& name) {
  const TensorView* t = file.find_tensor(name);
  if (!t) return {};
  std::vector<T> out(t->bytes.size() / sizeof(T));
  std::memcpy(out.data(), t->bytes.data(), t->bytes.size());
  return out;
}
TokenIds ids(const Safetensors& file, const std::string& name) {
  if (const TensorView* t = file.find_tensor(name); t && t->type == TensorType::I32) return values<int32_t>(file, name);
  const auto wide = values<int64_t>(file, name);
  return {wide.begin(), wide.end()};
}

struct Loaded {
  LoadedModel model;
  Loaded(const std::string& path, std::string_view kernels, const std::string& activations)
      : model(
            [&] {
              EngineOptions o;
              o.model = path;
              o.kernels = kernels;
              o.activations = activations;
              o.threads = 2;
              o.max_num_seqs = 1;
              o.max_num_batched_tokens = 128;
              o.max_model_len = 0;
              return o;
            }(),
            128) {}
};

double largest_difference(std::span<const float> a, std::span<const float> b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(double{a[i]} - b[i]));
  return largest;
}

class HfModels : public ::testing::TestWithParam<const char*> {};

TEST_P(HfModels, HaveTheLogitsAndTokensOfTransformers) {
  const fs::path folder = golden_dir() / "models" / GetParam();
  const auto expected = Safetensors::open(folder / "expected.safetensors");
  const double tolerance =
      nlohmann::json::parse(read_text_file(folder / "expected.json")).at("suggested_tolerance_max_abs_fp32");
  for (const KernelSet* set : available_kernels()) {
    Loaded loaded(folder.string(), set->name, "f32");
    SingleSequence sequence(loaded.model);
    for (int k = 0; k < 3; ++k) {
      const std::string n = "_" + std::to_string(k);
      sequence.clear();
      const TokenIds prompt = ids(expected, "prompt" + n), greedy = ids(expected, "greedy" + n);
      ASSERT_EQ(greedy.size(), 48u);
      auto logits = sequence.append(prompt, true);
      EXPECT_LE(largest_difference(values<float>(expected, "logits" + n), logits), tolerance)
          << GetParam() << " prompt " << k << " " << set->name;
      logits = logits.last(static_cast<size_t>(loaded.model.config.vocab));
      for (const TokenId token : greedy) {
        const TokenId best = argmax(logits);
        ASSERT_EQ(best, token) << GetParam() << " prompt " << k << " " << set->name;
        logits = sequence.append({&best, 1}, false);
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Families, HfModels,
                         ::testing::Values("llama", "llama_tied_rope3", "llama_linear_rope", "llama_yarn", "mistral",
                                           "qwen2"));

TEST(HfModels, AcceptTheOlderSpellingOfTheirConfiguration) {
  for (const char* name : {"llama_tied_rope3", "llama_linear_rope", "llama_yarn", "mistral", "qwen2"}) {
    const fs::path folder = golden_dir() / "models" / name;
    const fs::path copy = fs::temp_directory_path() / ("quire-v4-" + std::string(name));
    fs::remove_all(copy);
    fs::create_directory(copy);
    fs::copy(folder / "config_v4.json", copy / "config.json");
    fs::create_symlink(fs::absolute(folder / "model.safetensors"), copy / "model.safetensors");
    Loaded a(folder.string(), "auto", "f32"), b(copy.string(), "auto", "f32");
    const TokenIds prompt = ids(Safetensors::open(folder / "expected.safetensors"), "prompt_2");
    SingleSequence one(a.model), other(b.model);
    const auto x = one.append(prompt, true), y = other.append(prompt, true);
    EXPECT_EQ(std::memcmp(x.data(), y.data(), x.size() * sizeof(float)), 0) << name;
    fs::remove_all(copy);
  }
}

// A GGUF file of the same model as a folder under models/.
TEST(GgufModels, HaveTheLogitsOfTheirHfTwins) {
  for (const char* name : {"qwen2"}) {
    const fs::path folder = golden_dir() / "models" / name;
    const auto expected = Safetensors::open(folder / "expected.safetensors");
    const double tolerance =
        nlohmann::json::parse(read_text_file(folder / "expected.json")).at("suggested_tolerance_max_abs_fp32");
    Loaded loaded((golden_dir() / "models-gguf" / name).replace_extension(".gguf").string(), "auto", "f32");
    SingleSequence sequence(loaded.model);
    const auto logits = sequence.append(ids(expected, "prompt_2"), true);
    EXPECT_LE(largest_difference(values<float>(expected, "logits_2"), logits), tolerance) << name;
  }
}

void expect_reference_logits_and_tokens(const fs::path& folder, const std::string& name) {
  const auto expected = Safetensors::open(folder / (name + ".ref.safetensors"));
  const TokenIds prompt = ids(expected, "prompt"), tokens = ids(expected, "torch_tokens");
  const auto wanted = values<float>(expected, "torch_prompt_logits");
  double top = 0;
  for (const float v : wanted) top = std::max(top, std::abs(double{v}));
  for (const std::string activations : {"f32", "int8", "bf16"}) {
    SCOPED_TRACE(name + " " + activations);
    Loaded loaded((folder / (name + ".gguf")).string(), "auto", activations);
    SingleSequence sequence(loaded.model);
    const auto logits = sequence.append(prompt, true);
    if (activations == "f32") {
      EXPECT_LE(largest_difference(wanted, logits), 2e-4 + 1e-4 * top);
    } else {
      double error = 0, size = 0;
      for (size_t i = 0; i < wanted.size(); ++i)
        error += std::pow(double{wanted[i]} - logits[i], 2), size += std::pow(double{wanted[i]}, 2);
      EXPECT_LE(std::sqrt(error / size), 0.1);
      if (!name.starts_with("stories")) continue;  // random weights magnify rounding
    }
    auto last = logits.last(static_cast<size_t>(loaded.model.config.vocab));
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
  std::vector<std::string> found;
  for (const char* name :
       {"tiny256-F16", "tiny256-BF16", "tiny256-Q4_0", "tiny256-Q4_1", "tiny256-Q5_0", "tiny256-Q5_1", "tiny256-Q8_0",
        "tiny256-Q4_K_S", "tiny256-Q4_K_M", "tiny256-Q5_K_M", "tiny256-Q6_K", "stories260K-F32", "stories260K-Q8_0"}) {
    if (fs::exists(shared_dir() / "golden/formats/gguf-models" / (std::string(name) + ".gguf"))) found.push_back(name);
  }
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
  for (const char* activations : {"f32", "int8", "bf16"}) {
    Loaded loaded(path_, "auto", activations);
    const TokenIds tokens = loaded.model.text.tokenizer->encode(std::string_view(all).substr(0, 20'000),
                                                                {.add_special = false, .parse_special = false});
    const auto vocab = static_cast<size_t>(loaded.model.config.vocab);
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
